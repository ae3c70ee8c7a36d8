// This file is generated from the API's description by dashboard/client.py.
export const CallerViewCredential = ["token", "session", "none"] as const;
export const HealthStatus = ["ok", "degraded", "unavailable"] as const;
export const JobSpecKind = ["train", "script"] as const;
export const JobSpecStopSignal = ["TERM", "INT", "USR2", "HUP"] as const;
export const JobViewKind = ["train", "script"] as const;
export const LogLineStream = ["stdout", "stderr", "launcher"] as const;
export const NodeViewState = ["ready", "draining", "quarantined", "leaving", "lost"] as const;
export const PlannedMemoryState = ["known", "computing", "unknown"] as const;
export const ScheduleName = ["constant", "cosine", "linear"] as const;
export const StrategyName = ["ddp", "manual", "data_parallel", "zero1", "fsdp", "local_sgd", "diloco"] as const;
export const StrategyCompression = ["none", "fp16", "bf16", "powersgd"] as const;
export const TrainOptimizer = {"adamw": ["lr", "weight_decay", "betas", "eps"], "sgd": ["lr", "momentum", "nesterov", "weight_decay"]} as const;
export const TrainPrecision = ["fp32", "bf16", "fp16"] as const;
export const TrainNonFinite = ["stop", "skip"] as const;
