# One image for web, worker, set-up and the offline model; docker-compose.yml says which command runs.
# `name@sha256:...` pins it (docs/settings.md).
ARG PYTHON_IMAGE=python:3.12-slim
FROM ${PYTHON_IMAGE} AS packages
# 1 adds what sends traces (docs/metrics.md).
ARG OTEL=
COPY requirements/run.txt requirements/otel.txt /tmp/
RUN python -m venv /opt/venv \
 && python -m pip install --no-cache-dir --quiet --disable-pip-version-check uv==0.13.9 \
 && uv pip install --quiet --no-cache --python /opt/venv/bin/python --require-hashes --no-deps --compile-bytecode -r /tmp/run.txt ${OTEL:+-r /tmp/otel.txt}

FROM ${PYTHON_IMAGE}
RUN apt-get update -qq \
 && apt-get install -y -qq --no-install-recommends bubblewrap git \
 && rm -rf /var/lib/apt/lists/*
RUN groupadd --gid 10001 toolhub \
 && useradd --uid 10001 --gid toolhub --home-dir /data --shell /usr/sbin/nologin toolhub \
 && install -d -o toolhub -g toolhub -m 0700 /data /data/workspaces
COPY --from=packages /opt/venv /opt/venv
COPY . /app
WORKDIR /app
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    TOOLHUB_ENV=production \
    TOOLHUB_DATA_DIR=/data \
    HOST=0.0.0.0 \
    PORT=8000
RUN python -m compileall -q toolhub capabilities sessions \
 && TOOLHUB_BUILD=1 python manage.py collectstatic --noinput --verbosity 0
USER toolhub
VOLUME /data
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 CMD ["python", "toolhub/probe.py"]
CMD ["sh", "-c", "exec python -m uvicorn toolhub.asgi:application --host \"$HOST\" --port \"$PORT\" --timeout-graceful-shutdown 3 --log-level warning --no-server-header --no-proxy-headers --lifespan on"]
