# docker build -t roundoff . && docker run --rm -v "$PWD:/work" roundoff diagnose model.onnx --target generic-int8 --data x.npy
FROM python:3.12-slim
COPY pyproject.toml README.md LICENSE /src/
COPY src /src/src
# Messages name its pages, and the package carries them.
COPY docs /src/docs
RUN python -m pip install --no-cache-dir /src && rm -rf /src && useradd --create-home roundoff
USER roundoff
WORKDIR /work
ENTRYPOINT ["roundoff"]
