# The two commands on a machine without a graphics card:
#
#   docker build -t oat --build-arg PIP_EXTRA_INDEX_URL=… .
#   docker run --rm -v "$PWD/out:/oat/out" oat            # make demo; the page is out/demo/page.html
#   docker run --rm oat make test
#
# No daemon was at hand where this was written: what it runs is run by the tests, the image itself has not been built.
FROM python:3.11-slim
RUN apt-get update \
    && apt-get install --yes --no-install-recommends chromium git libegl1 libosmesa6 make \
    && rm -rf /var/lib/apt/lists/*
# PyTorch's index of builds for CPUs: without it, PyTorch brings several gigabytes for graphics cards.
ARG PIP_EXTRA_INDEX_URL
ENV PIP_NO_CACHE_DIR=1
WORKDIR /oat
# First what decides about the installation, so that a change of the code does not install everything anew.
COPY Makefile pyproject.toml constraints.txt README.md LICENSE ./
COPY scripts scripts
COPY src/oat/__init__.py src/oat/__init__.py
RUN make setup
COPY . .
RUN touch .venv/.installed
CMD ["make", "demo"]
