# Two stages: the first builds the wheel and installs it, the second holds only what runs.
FROM python:3.13-slim AS build
WORKDIR /src
COPY requirements requirements
RUN python -m venv /opt/build && python -m venv /opt/vllm-headroom \
    && /opt/build/bin/pip install --no-cache-dir --only-binary :all: --require-hashes -r requirements/build.txt \
    && /opt/vllm-headroom/bin/pip install --no-cache-dir --no-compile --only-binary :all: --require-hashes \
        -r requirements/image.txt
COPY pyproject.toml README.md LICENSE ./
COPY exporter exporter
RUN /opt/build/bin/hatchling build -t wheel -d /wheel \
    && /opt/vllm-headroom/bin/pip install --no-cache-dir --no-compile --no-deps /wheel/*.whl

FROM python:3.13-slim
COPY --from=build /opt/vllm-headroom /opt/vllm-headroom
# Nothing is written at run time, so the root file system may be read-only; bytecode would be a write.
ENV PATH=/opt/vllm-headroom/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 65534:65534
EXPOSE 9488
ENTRYPOINT ["vllm-headroom"]
CMD ["run"]
