# Clusterpass. `make help` lists the targets.

FUNCTIONS := control fleet proxy rotate
ARCHES    := arm64 amd64
GOBUILD   := CGO_ENABLED=0 go build -trimpath -ldflags "-s -w"
# lambda.norpc leaves out the Go 1.x runtime's RPC, which provided.al2023 does not use, and what signs people in to AWS.
FNFLAGS   := -tags lambda.norpc
LINT      := go tool -modfile=scripts/lint/go.mod golangci-lint
FUZZTIME  ?= 20s
SOAK      ?= 2h
ARCH      ?= arm64
BINDIR    ?= /usr/local/bin

.DEFAULT_GOAL := help
REPOSITORY ?= clusterpass-bridge
TAG       ?= latest
STACK     ?= clusterpass
.PHONY: help demo up install test soak lint fuzz bench build build-local moto image deploy localstack aws-rules deploy-check clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-zA-Z_-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: build-local ## Show everything on this machine, with two real clusters (ARGS=--exit ends at the end)
	go run ./test/demo $(ARGS)

up: build-local ## Run the gateway here; KUBECONFIG=... registers its contexts first (ARGS=--help)
	dist/local/clusterpass-local $(ARGS)

install: ## Install clusterpass, also as kubectl's plugin: kubectl clusterpass (BINDIR=/usr/local/bin)
	$(GOBUILD) -o $(BINDIR)/clusterpass ./scripts/clusterpass
	ln -sf clusterpass $(BINDIR)/kubectl-clusterpass
	ln -sf clusterpass $(BINDIR)/kubectl_complete-clusterpass

# One package at a time: most run many processes.
test: build-local moto ## Run every test, on real clusters (the first run builds Kubernetes: about 6 minutes on two cores)
	go run ./test/cluster/cmd/clusters build
	go vet ./...
	go test -race -count=1 -p 1 -timeout 60m ./...

moto: ## Install into .venv what tests need of Python and Python has not: moto, an imitation of AWS, the AWS CLI, websockets, and checkers of templates
	@$${CLUSTERPASS_PYTHON:-python3} -c 'import moto.server, cfnlint, samtranslator, awscli, websockets' 2>/dev/null || \
	.venv/bin/python3 -c 'import moto.server, cfnlint, samtranslator, awscli, websockets' 2>/dev/null || test/moto/install || \
	{ echo "what tests need of Python cannot be installed: Python 3 with venv and pip, and a package index, are needed; or name a Python that has what test/moto/requirements.txt names: CLUSTERPASS_PYTHON=..." >&2; exit 1; }

soak: build-local moto ## Watch two real clusters for SOAK=2h, through writes, cuts and restarts
	go run ./test/cluster/cmd/clusters build
	CLUSTERPASS_SOAK=$(SOAK) go test -race -count=1 -v -timeout 0 -run '^TestFleetInformers$$' ./test/e2e

lint: ## Run the linters
	$(LINT) run ./...

fuzz: ## Fuzz every parser and codec for FUZZTIME each
	@go list -f '{{$$p := .ImportPath}}{{range .TestGoFiles}}{{$$p}} {{$$.Dir}}/{{.}}{{"\n"}}{{end}}{{range .XTestGoFiles}}{{$$p}} {{$$.Dir}}/{{.}}{{"\n"}}{{end}}' ./... | \
	while read -r pkg file; do [ -n "$$file" ] || continue; \
	  for f in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(f .*/\1/p' "$$file"); do \
	    echo "== $$pkg $$f"; go test "$$pkg" -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) || exit 1; done; done

bench: build-local moto ## Measure cold starts, and the gateway beside direct calls
	go run ./test/bench
	go test -run '^$$' -bench Allowed ./shared/access
	go run ./test/bench/coldstart

build: build-local ## Build the functions' zips (arm64, amd64), the bridge and the agent into dist/
	$(foreach arch,$(ARCHES),$(foreach fn,$(FUNCTIONS),\
	GOOS=linux GOARCH=$(arch) $(GOBUILD) $(FNFLAGS) -o dist/$(arch)/$(fn)/bootstrap ./functions/$(fn)/bootstrap && \
	go run ./scripts/package dist/$(arch)/$(fn)/bootstrap dist/$(arch)/$(fn).zip &&)) true
	$(foreach arch,$(ARCHES),GOOS=linux GOARCH=$(arch) $(GOBUILD) -o dist/$(arch)/websocket-bridge ./websocket-bridge && \
	GOOS=linux GOARCH=$(arch) $(GOBUILD) -o dist/$(arch)/clusterpass-agent ./websocket-bridge/agent &&) true
	@if docker info >/dev/null 2>&1; then docker build --quiet --tag clusterpass-bridge --file websocket-bridge/Dockerfile . && \
	  docker build --quiet --tag clusterpass-agent --file websocket-bridge/agent/Dockerfile .; else echo "no Docker engine here: the images of bridge and agent are not built"; fi
	@ls -l dist/*/*.zip dist/*/websocket-bridge dist/*/clusterpass-agent

build-local: ## Build for this machine what demo, up, test and bench run
	@$(foreach fn,$(FUNCTIONS),$(GOBUILD) $(FNFLAGS) -o dist/local/functions/$(fn)/bootstrap ./functions/$(fn)/bootstrap &&) true
	@$(GOBUILD) -o dist/local/clusterpass-local ./infra/local
	@$(GOBUILD) -o dist/local/clusterpass ./scripts/clusterpass

build-ProxyFunction build-FleetFunction build-ControlFunction build-RotateFunction: build-%Function: # what sam build calls
	GOOS=linux GOARCH=$(ARCH) $(GOBUILD) $(FNFLAGS) -o $(ARTIFACTS_DIR)/bootstrap ./functions/$(shell echo $* | tr A-Z a-z)/bootstrap

image: ## Build the bridge's image for ARCH and push it to ECR: REPOSITORY, TAG
	scripts/image $(REPOSITORY) $(TAG) $(ARCH)

deploy: ## Deploy to AWS with SAM; the first time asks for the parameters (docs/aws.md)
	@command -v sam >/dev/null || { echo "make deploy needs the SAM CLI, sam; docs/aws.md says what else" >&2; exit 1; }
	sam build
	sam deploy --stack-name $(STACK) --resolve-s3 --capabilities CAPABILITY_IAM CAPABILITY_NAMED_IAM CAPABILITY_AUTO_EXPAND \
	  $(if $(wildcard samconfig.toml),,--guided)

localstack: moto ## Deploy to LocalStack, or to AWS_ENDPOINT_URL, and run the bridge beside it (docs/localstack.md)
	$(MAKE) --no-print-directory build ARCHES="$$(go env GOHOSTARCH)"
	infra/localstack/up

aws-rules: ## Write infra/aws/rules.yaml, from the table of routes
	go run ./infra/aws/rules > infra/aws/rules.yaml

deploy-check: build-local moto ## Check the AWS templates without AWS
	go test -count=1 ./infra/aws/...

clean: ## Delete what was built here
	rm -rf dist
