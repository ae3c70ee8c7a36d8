/** What is done to several jobs: each is asked for by itself, one after the other, and each answer is kept in words. */
import type { QueryClient } from "@tanstack/react-query";
import { cancelJob, deleteJob, type JobView } from "@/api/generated";
import { hasEnded } from "@/lib/ended";

export interface ActionWords {
  verb: string;
  isDanger: boolean;
  /** While it is being done, and afterwards. */
  doing: string;
  done: string;
  warning: string;
  isFor: (job: JobView) => boolean;
  /** What is said of so many that were chosen, too, and for which it is not. */
  ofOthers: (count: number) => string;
}

export interface Action extends ActionWords {
  /** Asks for it; what became of the job, in words. */
  ask: (job: JobView, queries: QueryClient) => Promise<string>;
}

export const CANCEL: Action = {
  verb: "Cancel",
  isDanger: true,
  doing: "Cancelling",
  done: "cancelled",
  warning: "What runs is asked to stop; a training job saves a checkpoint first. None is started again.",
  isFor: (job) => !hasEnded(job),
  ofOthers: (count) => `${count} more of the selected ${count === 1 ? "has" : "have"} ended already.`,
  ask: async ({ id }) => {
    const { data: after } = await cancelJob({ path: { reference: id }, throwOnError: true });
    return after.state === "cancelled" ? "cancelled" : "asked to stop; it ends when its processes are gone";
  },
};

export const DELETE: Action = {
  verb: "Delete",
  isDanger: true,
  doing: "Deleting",
  done: "deleted",
  warning: "Their numbers, their logs, their checkpoints and the jobs themselves are deleted. This cannot be undone.",
  isFor: hasEnded,
  ofOthers: (count) =>
    `${count} more of the selected ${count === 1 ? "has not ended and stays" : "have not ended and stay"}.`,
  ask: async ({ id }, queries) => {
    await deleteJob({ path: { reference: id }, throwOnError: true });
    // Else its page would show what was known of it.
    queries.removeQueries({ queryKey: ["job", id] });
    return "deleted";
  },
};

export const LABEL: ActionWords = {
  verb: "Label",
  isDanger: false,
  doing: "Labelling",
  done: "labelled",
  warning: "All readers of these jobs see their labels.",
  isFor: () => true,
  ofOthers: () => "",
};

/** False for an action that asks for more first. */
export function isWhole(action: ActionWords): action is Action {
  return "ask" in action;
}

export interface Answer {
  job: JobView;
  said: string;
  isRefused: boolean;
}

/** One answer per job, in their order; a refusal of one does not keep the others from being asked. */
export async function askEach(
  jobs: readonly JobView[],
  ask: (job: JobView) => Promise<string>,
  onAnswer: (answer: Answer) => void,
): Promise<void> {
  for (const job of jobs) {
    try {
      onAnswer({ job, said: await ask(job), isRefused: false });
    } catch (error) {
      onAnswer({ job, said: error instanceof Error ? error.message : String(error), isRefused: true });
    }
  }
}
