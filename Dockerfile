# syntax=docker/dockerfile:1
# Lockstep's programs as images. One build, three targets:
#
#   docker build --target server    .    api (the default command) and migrations; no torch
#   docker build --target scheduler .    the same files, another command and health check
#   docker build --target node      .    the node agent, with torch: for GPU hosts, and for CPU slots
#
# docker-compose.yml starts them together. Read from it and from this file by tests/packaging/test_compose.py; building and
# running the images is not part of the test suite.

FROM python:3.11-slim AS build
WORKDIR /src
# Without the dashboard's pages the build fails; where no npm registry can be reached, `--build-arg LOCKSTEP_PAGES=skip` goes
# on without them.
ARG LOCKSTEP_PAGES=require
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY dashboard/ dashboard/
COPY domain/ domain/
COPY storage/ storage/
COPY broker/ broker/
COPY migrations/ migrations/
COPY api/ api/
COPY scheduler/ scheduler/
COPY worker/ worker/
COPY engine/ engine/
COPY client/ client/
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.11-slim AS base
ENV PYTHONUNBUFFERED=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    LOCKSTEP_LOG_FORMAT=json \
    LOCKSTEP_STORE=/var/lib/lockstep/store
# For code from git, which the api looks up and the nodes fetch.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends git openssh-client \
    && rm -rf /var/lib/apt/lists/*
# A fixed id, so that the files of a volume belong to the same user in every image. The folders exist in the image because
# a new named volume takes their owner.
RUN useradd --uid 10001 --create-home --shell /usr/sbin/nologin lockstep \
    && install -d -o lockstep -g lockstep -m 0700 /var/lib/lockstep/store /var/lib/lockstep/token /var/lib/lockstep/node
COPY constraints.txt /opt/lockstep/constraints.txt
COPY docker/health.py /opt/lockstep/health.py
COPY --from=build /wheels /opt/lockstep/wheels
WORKDIR /var/lib/lockstep

FROM base AS server
RUN pip install --constraint /opt/lockstep/constraints.txt "$(echo /opt/lockstep/wheels/lockstep-*.whl)[server]"
USER lockstep
# Inside a container loopback reaches nobody. The api refuses any other address without authentication.
ENV LOCKSTEP_HOST=0.0.0.0 \
    LOCKSTEP_PORT=8470 \
    LOCKSTEP_TOKEN_FILE=/var/lib/lockstep/token/token
EXPOSE 8470
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 CMD ["python", "/opt/lockstep/health.py", "api"]
CMD ["python", "-m", "api"]

FROM server AS scheduler
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 CMD ["python", "/opt/lockstep/health.py", "scheduler"]
CMD ["python", "-m", "scheduler"]

FROM base AS node
# Empty takes torch with CUDA. `--build-arg PIP_TORCH_ARGS="--index-url URL"` takes another build of it, such as the much
# smaller one for CPUs.
ARG PIP_TORCH_ARGS=""
RUN pip install --constraint /opt/lockstep/constraints.txt ${PIP_TORCH_ARGS} torch \
    && pip install --constraint /opt/lockstep/constraints.txt "$(echo /opt/lockstep/wheels/lockstep-*.whl)[node]"
USER lockstep
ENV LOCKSTEP_NODE_DIR=/var/lib/lockstep/node
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 CMD ["python", "-I", "-S", "/opt/lockstep/health.py", "agent"]
CMD ["python", "-m", "worker"]
