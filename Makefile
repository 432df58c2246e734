# `make new` and `make test` set up what they need on a machine with Python (>= 3.10) and git. Variables:
#
#   KERNEL=rms_norm      the operation of `new` and `bench`
#   ARGS=                more options of `new` and `bench`, more arguments of pytest in `test` and `gpu-test`
#   TORCH_INDEX=URL      where torch comes from, for instance https://download.pytorch.org/whl/cpu (CPU, 200 MB);
#                        without it, from pip's own index: on Linux that is a CUDA build of some GB
#   PIP_EXTRA=           more options of every `pip install`
#   PYTHON=python3  VENV=.venv  JOBS=2

PYTHON ?= python3
VENV ?= .venv
KERNEL ?= rms_norm
JOBS ?= 2
ARGS ?=
TORCH_INDEX ?=
PIP_EXTRA ?=

BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
KERNELS := $(sort $(patsubst profiles/%.yaml,%,$(wildcard profiles/*.yaml)))
export OWN_TRITON := from importlib.metadata import requires; \
  raise SystemExit(not any(line.startswith("triton") for line in requires("torch")))
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check $(PIP_EXTRA)

.PHONY: new test gpu-test lint types bench gallery size venv

new: $(STAMP)
	$(BIN)/liger-dev new $(KERNEL) --yes $(ARGS)

# One thread a process, since there are JOBS of them and their children: torch's own threads would wait for one another.
test: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $(JOBS) --dist loadfile --no-loadscope-reorder $(ARGS)

# Kernels' tests run on the GPU where there is one; of the tool's own tests, those that need it.
gpu-test: $(STAMP)
	@$(BIN)/python -c "import sys, torch; torch.cuda.is_available() or sys.exit('gpu-test needs a CUDA device')"
	$(BIN)/python -m pytest -q test/kernels $(ARGS)
	$(BIN)/python -m pytest -q -m gpu --ignore test/kernels $(ARGS)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

bench: $(STAMP)
	$(BIN)/liger-dev bench $(KERNEL) $(ARGS)

# Makes every kernel that has a profile again, from its source in the catalogue.
gallery: $(STAMP)
	set -e; for kernel in $(KERNELS); do $(BIN)/liger-dev new $$kernel --yes --overwrite $(ARGS); done

# Lines of code, without blank lines and comments, in each folder; then the files of more than 400 lines.
size:
	@git ls-files '*.py' | xargs awk ' \
	  FNR == 1 { folder = FILENAME; sub(/\/[^\/]*$$/, "", folder) } \
	  !/^[ \t]*(#.*)?$$/ { lines[folder]++; total++ } \
	  { length_of[FILENAME]++ } \
	  END { for (f in lines) printf "%6d  %s\n", lines[f], f | "sort -k2"; close("sort -k2"); \
	        printf "%6d  in all\n", total; \
	        for (f in length_of) if (length_of[f] > 400) printf "%6d  %s: more than 400 lines\n", length_of[f], f }'

venv: $(STAMP)

# Torch comes first, by itself: whatever depends on it would choose another build. A CUDA build brings the triton
# that it was made for, and the pin of triton steps back.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c "import sys; sys.version_info >= (3, 10) or sys.exit('Python 3.10 or newer is needed: set PYTHON')"
	@echo "setting up $(VENV): takes minutes the first time"
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) --upgrade pip
	@$(PIP) $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) torch==2.13.0
	@$(BIN)/python -c "$$OWN_TRITON" \
	  && grep -v '^triton' constraints.txt > $(VENV)/constraints.txt || cp constraints.txt $(VENV)/constraints.txt
	@$(PIP) --constraint $(VENV)/constraints.txt --editable '.[dev]'
	@touch $@
