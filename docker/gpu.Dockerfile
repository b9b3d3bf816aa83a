# ragen_verl on GPUs: exactly requirements/gpu.lock.   docker build -f docker/gpu.Dockerfile -t ragen-verl:gpu .
#                                                      docker run --rm -it --gpus all --ipc=host ragen-verl:gpu doctor
# torch's wheels bring CUDA; the compiler is for kernels that vLLM and torch build when they start.
FROM nvidia/cuda:13.0.1-devel-ubuntu24.04
RUN apt-get update && apt-get install -y --no-install-recommends python3.12 python3.12-venv python3.12-dev make g++ git && rm -rf /var/lib/apt/lists/*
WORKDIR /ragen_verl
COPY . .
RUN python3.12 -m venv /opt/tools && /opt/tools/bin/python requirements/gpu.py /opt/ragen
ENV PATH=/opt/ragen/bin:$PATH
ENTRYPOINT ["ragen-verl"]
CMD ["doctor"]
