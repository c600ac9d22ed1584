# Clusterpass. `make help` lists the targets.

FUNCTIONS := control fleet proxy rotate
ARCHES    := arm64 amd64
# With -trimpath, all checkouts share compiled packages. A compiler that writes no DWARF, and collects no garbage below
# 256 MiB, needs a quarter less time. That limit is not documented, so a later compiler may lack it. The environment
# passes the flags to every go command. In the directory /, no go.mod makes Go download another version of itself.
HEAP      := -d=gcstart=256
COMPILER  := -trimpath '-gcflags=all=-dwarf=false$(shell cd / && go tool compile $(HEAP) -V >/dev/null 2>&1 && echo " $(HEAP)")'
override GOFLAGS := $(strip $(subst $(COMPILER),,$(or $(GOFLAGS),$(shell cd / && go env GOFLAGS 2>/dev/null))) $(COMPILER))
export GOFLAGS
GOBUILD   := env CGO_ENABLED=0 go build -ldflags "-s -w"
# scripts/deploy sets BUILD_VERSION, because sam build copies the checkout without its .git.
VERSION   := github.com/clusterpass/clusterpass/shared/version
STAMP     := $(if $(BUILD_VERSION),-X $(VERSION).tag=$(BUILD_VERSION) -X $(VERSION).revision=$(BUILD_REVISION) -X $(VERSION).date=$(BUILD_DATE))
# lambda.norpc omits the RPC server of the Go 1.x runtime, which provided.al2023 does not use.
FNFLAGS   := -tags lambda.norpc
# The gateways of releases and images are compiled with a profile of their load. make profile records it.
PGO       := -pgo=$(CURDIR)/infra/release/gateway.pgo
# The linters and go vet use the same compiled packages as GOBUILD.
AS_BUILT  := env CGO_ENABLED=0
# The linter caches file paths, so each checkout has its own cache.
LINT      := $(AS_BUILT) GOLANGCI_LINT_CACHE=$(CURDIR)/dist/lint go tool -modfile=scripts/lint/go.mod golangci-lint
# Tests mostly wait, so twice as many packages as cores run in parallel.
JOBS      ?= $(shell expr 2 \* $$(getconf _NPROCESSORS_ONLN))
# The race detector needs a C compiler.
RACE       = $(if $(shell command -v $$(go env CC 2>/dev/null)),-race)
# Without DWARF, the test programs link in half the time. make vet checks their code.
GOTEST     = go test $(RACE) -ldflags=-w -vet=off -p $(JOBS)
ARCH      ?= arm64
BINDIR    ?= /usr/local/bin
REPOSITORY ?= clusterpass-bridge
# make image and make deploy without a TAG use the revision of the checkout.
TAG       ?=
REGISTRY  ?= ghcr.io/clusterpass
IMAGES    := clusterpass clusterpass-bridge clusterpass-agent
STACK     ?= clusterpass
# make deploy with a deployment configuration of CodeDeploy, and with the provisioned concurrency of control.
CANARY      ?=
PROVISIONED ?=
AREA      ?= ...
FUZZTIME  ?= 20s
SOAK      ?= 2h
CHROMIUM  ?= $(shell command -v chromium || command -v google-chrome)

# Packages that users run, also on macOS. Their tests need Go and Python, but no cluster.
PORTABLE := ./functions/... ./infra/... ./scripts/... ./shared/... ./websocket-bridge/...

# The other packages whose tests start no cluster. test/rules finds those that are missing here.
LOCAL    := ./test/leak ./test/clients/terminal ./test/conformance ./test/upgrade ./test/bench/coldstart ./test/demo/picture \
  ./test/cluster/build ./test/cluster/ownership ./test/cluster/pki ./test/cluster/published \
  ./test/kubelet/crilog ./test/kubelet/expansion ./test/kubelet/shim
# Packages that the slow suites run, and make test does not. It runs test/rules without the race detector.
SLOW := /test/(browser|browser/console|clients|kubernetes|rules)$$
# Packages whose tests depend only on their code and on files that the test process opens. Go runs them again when these
# change. It does not notice changed programs outside the module, such as Python with moto, and aws. That is accepted.
CACHED := ./websocket-bridge/... ./shared/fleet/... ./shared/... ./functions/... \
  ./infra/aws/canary/... ./infra/kubernetes ./infra/local/frontdoor ./infra/local/lambda/event ./infra/local/terminal \
  ./infra/server ./scripts/style/... ./test/clients/terminal ./test/cluster/pki ./test/demo/picture \
  ./test/kubelet/crilog ./test/kubelet/expansion ./test/kubelet/shim ./test/leak
# The packages that last longest come first. At the end they would run alone, and leave cores idle.
LONG  := e2e/streams e2e/fleet e2e/gateway e2e/access e2e/private e2e/api hub access cluster fleetcheck kubelet
TESTS = $$(go list ./infra/aws $(LONG:%=./test/%) ./infra/... ./scripts/... ./test/... | grep -vE '$(SLOW)' | \
  grep -vxF "$$(go list $(CACHED))")

# Modules with code of their own, so that the product does not depend on what they need.
MODULES := infra/release scripts/checks

# A long step prints its name, the elapsed time and, if it fails, what it needs.
STEP     := scripts/step
CONSOLE  := websocket-bridge/console/dist/index.html
# Builds of programs that others run contain the console if Node can build it. A release always contains it.
WITH_CONSOLE := $(if $(and $(shell command -v node),$(shell command -v npm)),$(CONSOLE))
NEEDS_GO := "Go 1.26.4 or later, git, and the Go module proxy or a full module cache"
NEEDS_TEST := "Go 1.26.4 or later, curl and Python 3; the output above names the failed test"

.DEFAULT_GOAL := help
.PHONY: help demo picture up build-demo build-up install check lint vet rules vulncheck licenses test-tree test test-e2e test-all test-clients test-browser measure-console test-kubernetes test-conformance test-scale moto soak diagram fuzz bench \
  needs-test-clients needs-test-browser needs-console console needs-test-kubernetes needs-test-conformance needs-test-scale needs-soak needs-fuzz needs-test-release \
  goflags build build-arch bench-program build-bench build-local profile clusters image images release release-tools release-snapshot test-release push-images deploy localstack aws-rules deploy-check clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-zA-Z_0-9-]+:.*## / {printf "  %-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: build-demo ## Show Clusterpass on this machine, with two real clusters (ARGS=--exit stops it at the end)
	@dist/local/demo $(ARGS)

picture: build-demo ## Draw docs/demo.svg from a run of the demo
	@dist/local/demo --picture docs/demo.svg

build-demo:
	@echo "1. Compile the demo: seconds, and with an empty Go cache about 4 minutes on two cores."
	@echo "2. Get Kubernetes once: a download, or else its compilation, which needs about 6 minutes more."
	@echo "3. Start one cluster and the gateway, use them, add a second cluster, use both: about 10 seconds."
	@$(STEP) "compile the demo" $(NEEDS_GO) scripts/compile dist/local/ \
	  ./test/demo ./scripts/clusterpass ./test/cluster/cmd/clusters ./test/kubelet/cmd/process-kubelet

# Only --functions=process runs the functions as programs of their own.
up: $(if $(findstring process,$(ARGS) $(CLUSTERPASS_FUNCTIONS)),build-local,build-up) ## Run the gateway here; KUBECONFIG=... registers its contexts first (ARGS=--help)
	@dist/local/clusterpass-local $(ARGS)

build-up:
	@$(STEP) "compile the gateway: seconds, and with an empty Go cache about 3 minutes on two cores" $(NEEDS_GO) \
	  scripts/compile dist/local/clusterpass-local ./infra/local

install: ## Install clusterpass, also as a plugin of kubectl: kubectl clusterpass (BINDIR=/usr/local/bin)
	@$(STEP) "build clusterpass into $(BINDIR)" "Go 1.26.4 or later and write access to BINDIR=$(BINDIR)" \
	  $(GOBUILD) -o $(BINDIR)/clusterpass ./scripts/clusterpass
	ln -sf clusterpass $(BINDIR)/kubectl-clusterpass
	ln -sf clusterpass $(BINDIR)/kubectl_complete-clusterpass

# Slow tests skip themselves with -short. make test runs them.
check: lint vet rules test-tree vulncheck build-local moto ## Run before every commit: lint, vet, style findings and the quick tests without clusters (2 minutes)
	@$(STEP) "test the packages that need no cluster" $(NEEDS_TEST) $(GOTEST) -short $(PORTABLE) $(LOCAL)
	@$(STEP) "test the images" $(NEEDS_GO) go test -C infra/release -short ./image ./images

vulncheck: ## Report known vulnerabilities, where their database can be reached (REQUIRED=yes fails elsewhere)
	@$(STEP) "check for known vulnerabilities" "Go 1.26.4 or later, and the database of https://vuln.go.dev" scripts/vulncheck $(REQUIRED)

licenses: ## Report the licenses of all dependencies, with their texts, in dist/licenses.txt
	@mkdir -p dist
	@$(STEP) "report the licenses of all dependencies" $(NEEDS_GO) sh -ec \
	  'go run -C scripts/checks ./licenses --root $(CURDIR) --full > dist/licenses.txt'

lint: ## Run the linters
	@$(STEP) "check the workflows" $(NEEDS_GO) go tool -modfile=scripts/checks/go.mod actionlint -shellcheck= -pyflakes=
	@$(STEP) "lint (the first run builds the linter: minutes)" $(NEEDS_GO) $(LINT) run ./...
	@for module in $(MODULES); do (cd $$module && ../../$(STEP) "lint the module $$module" $(NEEDS_GO) \
	  $(subst scripts/lint,../../scripts/lint,$(LINT)) run ./...) || exit 1; done

vet: ## Run go vet, also for macOS, and compile clusterpass for Windows
	@$(STEP) "go vet" $(NEEDS_GO) $(AS_BUILT) go vet ./...
	@for module in $(MODULES); do $(STEP) "go vet of the module $$module" $(NEEDS_GO) \
	  $(AS_BUILT) go vet -C $$module ./... || exit 1; done
	@$(STEP) "go vet for macOS" $(NEEDS_GO) $(AS_BUILT) GOOS=darwin go vet $(PORTABLE)
	@$(STEP) "compile clusterpass for Windows" $(NEEDS_GO) $(AS_BUILT) GOOS=windows go build -o /dev/null ./scripts/clusterpass

rules: ## Refuse style findings in comments and docs
	@$(STEP) "check the style of comments and docs" "Go 1.26.4 or later; CONTRIBUTING.md lists the rules" go run ./scripts/style

test-tree: # checks of the whole source tree, for check and test, without a cache, which cannot see all files
	@$(STEP) "check the licenses of all dependencies" $(NEEDS_GO) go test -C scripts/checks -count=1 ./...
	@$(STEP) "test the rules of the source tree" $(NEEDS_GO) go test -count=1 ./test/rules

test: test-tree build-local moto clusters ## Run every test but the slow suites, on real clusters (the first run builds Kubernetes)
	@$(STEP) "run the tests without clusters, unless they passed and nothing changed" $(NEEDS_TEST) $(GOTEST) -timeout 60m $(CACHED)
	@$(STEP) "run the other tests" $(NEEDS_TEST) $(GOTEST) -count=1 -timeout 60m $(TESTS)
	@$(STEP) "test the images" $(NEEDS_GO) go test -C infra/release -count=1 ./image ./images

test-e2e: build-local moto clusters ## Run the end-to-end tests of one area: AREA=fleet, gateway, streams, private, access or api
	@$(STEP) "run the end-to-end tests of $(AREA)" $(NEEDS_TEST) $(GOTEST) -count=1 -timeout 60m ./test/e2e/$(AREA)

NODE_20 := node --eval 'process.exit(parseInt(process.versions.node) < 20)' 2>/dev/null && command -v npm >/dev/null

# Requirements of a slow suite beyond those of make test. scripts/ci-suite skips suites whose target fails.
needs-test-clients:
	@node --experimental-websocket --eval "" 2>/dev/null && command -v npm >/dev/null || \
	  { echo "make test-clients: no suitable Node with npm; install Node 20.10 or later, with npm" >&2; exit 1; }

needs-test-browser:
	@$(NODE_20) || { echo "make test-browser: no suitable Node with npm; install Node 20 or later, with npm" >&2; exit 1; }
	@[ -n "$(CHROMIUM)" ] || { echo "make test-browser: no Chromium; install it, or set CHROMIUM to its path" >&2; exit 1; }

needs-test-release: needs-console
	@command -v dpkg-deb >/dev/null || { echo "make test-release: no dpkg-deb; install dpkg" >&2; exit 1; }

needs-test-conformance needs-test-kubernetes needs-test-scale needs-soak needs-fuzz:
	@:

test-clients: needs-test-clients build-local moto clusters ## Slow suite: kubectl, helm, k9s, stern and other clients (the first run builds them: 6 minutes)
	@$(STEP) "build the client programs" $(NEEDS_GO) $(AS_BUILT) go run ./test/clients/cmd/programs
	@cd test/clients/javascript && ../../../$(STEP) "install the JavaScript client" "npm and its registry" npm ci --silent --no-audit --no-fund
	@$(STEP) "run the client programs" "Node 20.10 or later with npm, and what make test needs" \
	  $(GOTEST) -count=1 -timeout 25m ./test/clients

console: needs-console $(CONSOLE) ## Build the web page that a gateway which is compiled afterwards serves at /console/

CONSOLE_WEB := websocket-bridge/console/web
$(CONSOLE): $(wildcard $(foreach d,. src src/* src/*/*,$(CONSOLE_WEB)/$(d)/*.*))
	@cd websocket-bridge/console/web && $(CURDIR)/$(STEP) "install the packages of the console" "npm and its registry" npm ci --silent --no-audit --no-fund
	@cd websocket-bridge/console/web && $(CURDIR)/$(STEP) "build the console" "Node 20 or later with npm" npm run --silent build

needs-console:
	@$(NODE_20) || { echo "make console: no suitable Node with npm; install Node 20 or later, with npm" >&2; exit 1; }

test-browser: needs-test-browser console build-local clusters ## Slow suite: the console, attacks by pages, a user interface, and the player of recordings, in Chromium (the first run builds Kubernetes)
	@cd test/browser && ../../$(STEP) "install the driver of the browser, a player and axe-core" "npm and its registry" npm ci --silent --no-audit --no-fund
	@CHROMIUM=$(CHROMIUM) SCREENSHOTS=$(abspath $(SCREENSHOTS)) $(STEP) "run the tests in a browser" "Node 20 or later, Chromium, and what make test needs" \
	  $(GOTEST) -count=1 -timeout 25m ./test/browser/...

# Without the race detector, which would slow down the gateway and the clusters' clients.
measure-console: needs-test-browser console build-local clusters ## Measure the console with ROWS=100000, and its memory if WATCH=1h is set
	@cd test/browser && ../../$(STEP) "install the driver of the browser, a player and axe-core" "npm and its registry" npm ci --silent --no-audit --no-fund
	@CHROMIUM=$(CHROMIUM) ROWS=$(or $(ROWS),100000) WATCH=$(WATCH) $(STEP) "measure the console" "Node 20 or later, Chromium, and what make test needs" \
	  go test -ldflags=-w -count=1 -v -timeout 0 -run '^(TestLargeTableScrolls|TestWatchKeepsMemory)$$' ./test/browser/console

test-kubernetes: clusters ## Slow suite: the Helm charts, installed into a real cluster, under restarts (the first run builds helm: 3 minutes)
	@$(STEP) "build the programs of the images (the first run compiles for minutes)" $(NEEDS_GO) sh -ec '\
	  $(GOBUILD) -o dist/local/websocket-bridge ./websocket-bridge; $(GOBUILD) -o dist/local/clusterpass ./scripts/clusterpass; \
	  $(GOBUILD) -o dist/local/clusterpass-agent ./websocket-bridge/agent'
	@$(STEP) "run the charts, and measure restarts" "what make test needs" $(GOTEST) -v -count=1 -timeout 25m ./test/kubernetes

test-conformance: build-local ## Slow suite: Kubernetes' conformance specs, directly, through the gateway and a fleet of one
	@$(STEP) "build the conformance program" $(NEEDS_GO) $(AS_BUILT) go build -o dist/local/conformance ./test/conformance
	@dist/local/conformance $(ARGS)

soak: build-local moto clusters ## Slow suite: compare the fleet with real clusters for SOAK=2h, through writes, cuts and restarts
	@CLUSTERPASS_SOAK=$(SOAK) $(STEP) "compare the fleet with its clusters for $(SOAK)" $(NEEDS_TEST) \
	  $(GOTEST) -count=1 -v -timeout 0 -run '^(TestFleetInformers|TestFleetAnswersAsItsClusters)$$' ./test/e2e/fleet ./test/fleetcheck

test-scale: bench-program ## Slow suite: lists and a watch of a fleet of 100 clusters, checked and not measured (2 minutes)
	@$(STEP) "check a fleet of 100 clusters" $(NEEDS_GO) dist/local/bench --check-scale

diagram: ## Draw docs/explanation/architecture.svg (needs Graphviz)
	@$(STEP) "draw docs/explanation/architecture.svg" "Graphviz" dot -Tsvg docs/explanation/architecture.dot -o docs/explanation/architecture.svg

fuzz: ## Slow suite: fuzz every parser and codec for FUZZTIME=20s each
	@$(STEP) "fuzz" $(NEEDS_GO) scripts/fuzz $(FUZZTIME)

test-all: needs-test-clients needs-test-browser needs-test-release check test test-clients test-browser test-kubernetes test-conformance test-release test-scale soak fuzz ## Run everything, before a release

goflags: ## Print GOFLAGS, with which your own go commands use the packages that make compiled
	@echo "$$GOFLAGS"

clusters: ## Build Kubernetes for the test clusters, unless it is built (6 minutes on two cores)
	@$(STEP) "build the programs of the test clusters" $(NEEDS_GO) $(AS_BUILT) go run ./test/cluster/cmd/clusters build

moto: ## Install the Python packages that the tests need into .venv, unless Python has them
	@$${CLUSTERPASS_PYTHON:-python3} -c 'import moto.server, cfnlint, samtranslator, awscli, websockets' 2>/dev/null || \
	.venv/bin/python3 -c 'import moto.server, cfnlint, samtranslator, awscli, websockets' 2>/dev/null || \
	$(STEP) "install Python packages" "Python 3 with venv and pip and a package index, or CLUSTERPASS_PYTHON=PATH of a Python that has the packages of test/moto/requirements.txt" test/moto/install

bench-program: build-local
	@$(STEP) "build the benchmarks" $(NEEDS_GO) $(AS_BUILT) go build -o dist/local/ ./test/bench

build-bench: bench-program # the benchmarks, and the gateway that they measure
	@$(STEP) "build the gateway as releases do (the first run compiles for 6 minutes on two cores)" $(NEEDS_GO) \
	  $(GOBUILD) $(PGO) -o dist/local/clusterpass-local ./infra/local

profile: bench-program ## Record infra/release/gateway.pgo, a profile of the gateway with which releases are compiled (8 minutes)
	@rm -rf dist/profiles && mkdir -p dist/profiles
	@$(STEP) "record profiles" $(NEEDS_GO) env BENCH_PROFILES=$(CURDIR)/dist/profiles dist/local/bench calls scale
	@dist/local/bench merge-profiles dist/profiles infra/release/gateway.pgo

bench: build-bench moto ## Measure the gateway compared with direct requests, and cold starts (ARGS=--help)
	@$(STEP) "measure the gateway and direct requests" $(NEEDS_GO) dist/local/bench \
	  $(or $(ARGS),--write docs/benchmarks.md)
	@$(STEP) "measure access decisions" $(NEEDS_GO) go test -run '^$$' -bench Allowed ./shared/access

build: $(WITH_CONSOLE) build-local ## Build the functions' zips (arm64, amd64), the bridge and the agent into dist/
	@for arch in $(ARCHES); do $(STEP) "build functions, bridge and agent for $$arch" $(NEEDS_GO) \
	  $(MAKE) --no-print-directory build-arch ARCH=$$arch || exit 1; done
	@ls -l dist/*/*.zip dist/*/websocket-bridge dist/*/clusterpass-agent

build-arch: # build for one ARCH
	@for fn in $(FUNCTIONS); do \
	  GOOS=linux GOARCH=$(ARCH) $(GOBUILD) $(FNFLAGS) -o dist/$(ARCH)/$$fn/bootstrap ./functions/$$fn/bootstrap && \
	  go run ./scripts/package dist/$(ARCH)/$$fn/bootstrap dist/$(ARCH)/$$fn.zip || exit 1; done
	@GOOS=linux GOARCH=$(ARCH) $(GOBUILD) -o dist/$(ARCH)/websocket-bridge ./websocket-bridge
	@GOOS=linux GOARCH=$(ARCH) $(GOBUILD) -o dist/$(ARCH)/clusterpass-agent ./websocket-bridge/agent

build-local: ## Build the programs for demo, up, test and bench, for this machine
	@$(STEP) "build the functions, the gateway and the command line (the first run compiles for minutes)" $(NEEDS_GO) sh -ec '\
	  for fn in $(FUNCTIONS); do $(GOBUILD) $(FNFLAGS) -o dist/local/functions/$$fn/bootstrap ./functions/$$fn/bootstrap; done; \
	  $(GOBUILD) -o dist/local/clusterpass-local ./infra/local; \
	  $(GOBUILD) -o dist/local/localstack-functions ./infra/localstack/functions; \
	  $(GOBUILD) -o dist/local/clusterpass ./scripts/clusterpass'

build-ProxyFunction build-FleetFunction build-ControlFunction build-RotateFunction: build-%Function: # for sam build
	GOOS=linux GOARCH=$(ARCH) $(subst -s -w,-s -w $(STAMP),$(GOBUILD)) $(FNFLAGS) -o $(ARTIFACTS_DIR)/bootstrap ./functions/$(shell echo $* | tr A-Z a-z)/bootstrap

images: licenses $(WITH_CONSOLE) ## Build the images for ARCH, without Docker, as files for docker load or podman load: ARCH, TAG
	@$(STEP) "build the programs of the images for $(ARCH) (the first run compiles for minutes)" $(NEEDS_GO) sh -ec 'export GOOS=linux GOARCH=$(ARCH); \
	  $(GOBUILD) $(PGO) -o dist/$(ARCH)/clusterpass-local ./infra/local; $(GOBUILD) -o dist/$(ARCH)/clusterpass ./scripts/clusterpass; \
	  $(GOBUILD) $(PGO) -o dist/$(ARCH)/websocket-bridge ./websocket-bridge; $(GOBUILD) -o dist/$(ARCH)/clusterpass-agent ./websocket-bridge/agent'
	@mkdir -p dist/images
	@for image in $(IMAGES); do $(STEP) "build the image $$image" $(NEEDS_GO) \
	  go run -C infra/release ./image --image $$image --arch $(ARCH) --programs '$(CURDIR)/dist/{arch}' \
	  --save $(CURDIR)/dist/images/$$image.tar --tag $(REGISTRY)/$$image:$(or $(TAG),latest) || exit 1; done

# Without a remote, goreleaser ignores the commit, so release-snapshot names one. Its own timeout, an hour, is too short
# for a busy machine with empty caches.
GORELEASER := env PATH=$(CURDIR)/dist/tools:$$PATH go tool -modfile=infra/release/tools/go.mod goreleaser release \
  --config infra/release/goreleaser.yaml --clean --parallelism 2 --timeout 4h

release-tools:
	@$(STEP) "build the programs that make releases (the first run compiles for minutes)" $(NEEDS_GO) sh -ec ' \
	  go build -C infra/release/tools -o $(CURDIR)/dist/tools/ github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod; \
	  go tool -modfile=infra/release/tools/go.mod goreleaser --version >/dev/null'

release-snapshot: licenses console release-tools ## Build all files of a release into dist/release, without publishing them (an hour on two cores)
	@INDEX_TOKEN= GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=remote.origin.url GIT_CONFIG_VALUE_0=https://github.com/clusterpass/clusterpass \
	  $(STEP) "build the files of a release" $(NEEDS_GO) $(GORELEASER) --snapshot --skip=sign
	@$(STEP) "check the files of the release" $(NEEDS_GO) env RELEASE_DIR=$(CURDIR)/dist/release go test -C infra/release -count=1 -timeout 30m ./snapshot

test-release: needs-test-release licenses console release-tools ## Slow suite: build and check the files of a release for linux/amd64 alone
	@$(STEP) "build and check the files of a release for one system" $(NEEDS_GO) go test -C infra/release -count=1 -timeout 60m ./snapshot

# The console is built by packages of npm. They must not run beside the credentials of a release.
release: licenses release-tools # for the release workflow: publish the files of TAG, with a console that is built
	@scripts/releasable "$(TAG)"
	@[ -f $(CONSOLE) ] || { echo "make release: no console; run make console before, without credentials" >&2; exit 1; }
	@GORELEASER_CURRENT_TAG=$(TAG) NEWEST=$$(scripts/newest $(TAG)) \
	  $(STEP) "build and publish the files of a release" "a tag, and the credentials of the release workflow" $(GORELEASER)

push-images: # for the release workflow: push the images of dist/release, with a password on standard input
	@$(STEP) "push the images" "what make release has built, and a registry" \
	  scripts/push-images $(CURDIR)/dist/release $(REGISTRY) $(REGISTRY_USER) $(TAG)

image: licenses $(WITH_CONSOLE) ## Build the bridge's image for ARCH, without Docker, and push it to ECR: REPOSITORY, TAG, ARCH=amd64,arm64
	@$(STEP) "build and push the bridge's image" "the credentials of an AWS account and its CLI; docs/guide/aws.md has the list" scripts/image $(REPOSITORY) "$(TAG)" $(ARCH)

deploy: ## Deploy to AWS with SAM and the image of make image: REPOSITORY, TAG (none without a bridge), ARCH, CANARY, PROVISIONED (docs/guide/aws.md)
	@scripts/deploy $(STACK) $(REPOSITORY) "$(TAG)" $(ARCH) "$(CANARY)" "$(PROVISIONED)"

localstack: moto ## Deploy to LocalStack or AWS_ENDPOINT_URL, and run the bridge here (docs/guide/localstack.md)
	$(MAKE) --no-print-directory build ARCHES="$$(go env GOHOSTARCH)"
	infra/localstack/up

aws-rules: ## Generate infra/aws/rules.yaml from the routing table
	@$(STEP) "write infra/aws/rules.yaml" $(NEEDS_GO) go run ./infra/aws/rules > infra/aws/rules.yaml

deploy-check: build-local moto ## Check the AWS templates without AWS
	@$(STEP) "check the AWS templates" $(NEEDS_TEST) go test -count=1 ./infra/aws/...

clean: ## Delete all build results
	rm -rf dist
