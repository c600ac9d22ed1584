package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/clusterpass/clusterpass/infra/release/images"
)

const password = "secret-of-the-registry"

// newRegistry starts a registry that accepts the user AWS.
func newRegistry(t *testing.T) string {
	t.Helper()
	h := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, given, _ := r.BasicAuth(); user != "AWS" || given != password {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

func pulled(t *testing.T, reference string) (v1.ImageIndex, string) {
	t.Helper()
	ref, err := name.ParseReference(reference)
	if err != nil {
		t.Fatal(err)
	}
	index, err := remote.Index(ref, remote.WithAuth(&authn.Basic{Username: "AWS", Password: password}))
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	digest, err := index.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return index, digest.String()
}

// bridge builds a small program in the place of the bridge. It returns flags that name the program and licenses.
func bridge(t *testing.T) []string {
	t.Helper()
	dir := t.TempDir()
	for file, content := range map[string]string{
		"go.mod": "module tiny\n", "main.go": "package main\n\nfunc main() {}\n", "licenses.txt": "Apache License\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, arch := range []string{"amd64", "arm64"} {
		cmd := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dir, arch, "websocket-bridge"), ".")
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
		if output, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, output)
		}
	}
	return []string{"--programs", filepath.Join(dir, "{arch}"), "--licenses", filepath.Join(dir, "licenses.txt")}
}

// TestPush fails if a release cannot be published without a container engine, or if two pushes differ.
func TestPush(t *testing.T) {
	host := newRegistry(t)
	repository := host + "/clusterpass/clusterpass-bridge"
	args := append(bridge(t), "--image", "clusterpass-bridge", "--version", "v0.1.0",
		"--date", "2026-11-23T20:55:23Z", "--username", "AWS", "--password-stdin",
		"--push", repository+":v0.1.0,"+repository+":latest")
	for range 2 {
		var out bytes.Buffer
		if err := run(t.Context(), args, strings.NewReader(password+"\n"), &out); err != nil {
			t.Fatal(err)
		}
		index, digest := pulled(t, repository+":v0.1.0")
		want := repository + ":v0.1.0@" + digest + "\n" + repository + ":latest@" + digest + "\n"
		if out.String() != want {
			t.Errorf("it prints %q, want %q", out.String(), want)
		}
		if manifest, err := index.IndexManifest(); err != nil || len(manifest.Manifests) != 2 ||
			manifest.Annotations["org.opencontainers.image.version"] != "v0.1.0" {
			t.Errorf("%+v, %v", manifest, err)
		}
	}
	err := run(t.Context(), args, strings.NewReader("wrong"), io.Discard)
	if err == nil || !strings.Contains(err.Error(), "401") || strings.Contains(err.Error(), "wrong") {
		t.Errorf("with a wrong password: %v", err)
	}
}

// TestSave fails if docker load cannot read the file, so that an image of a checkout can only run from a registry.
func TestSave(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bridge.tar")
	const tag = "ghcr.io/clusterpass/clusterpass-bridge:latest"
	args := append(bridge(t), "--image", "clusterpass-bridge", "--save", file, "--tag", tag)
	if err := run(t.Context(), append(args, "--arch", runtime.GOARCH), nil, io.Discard); err != nil {
		t.Fatal(err)
	}
	ref, err := name.NewTag(tag)
	if err != nil {
		t.Fatal(err)
	}
	img, err := tarball.ImageFromPath(file, &ref)
	if err != nil {
		t.Fatal(err)
	}
	if config, err := img.ConfigFile(); err != nil || config.Architecture != runtime.GOARCH ||
		config.Config.Labels["org.opencontainers.image.version"] != "devel" {
		t.Errorf("%+v, %v", config, err)
	}
	if err := run(t.Context(), args, nil, io.Discard); err == nil || !strings.Contains(err.Error(), "--arch") {
		t.Errorf("with two architectures: %v", err)
	}
}

// TestBadFlags fails if a mistake in a workflow is not explained.
func TestBadFlags(t *testing.T) {
	flags := bridge(t)
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--image", "clusterpass-bridge"}, "want --push REFERENCE, or --save FILE"},
		{[]string{"--image", "bridge", "--push", "x"}, "want one of clusterpass, clusterpass-bridge"},
		{[]string{"--image", "clusterpass-bridge", "--push", "x:1", "more"}, `unknown argument "more"`},
		{[]string{"--image", "clusterpass-bridge", "--push", "x:1", "--date", "today"}, "--date: "},
		{[]string{"--image", "clusterpass-bridge", "--push", "no registry"}, "--push no registry: "},
		{[]string{"--image", "clusterpass-bridge", "--push", "x:1", "--username", "AWS"}, "add --password-stdin"},
		{[]string{"--image", "clusterpass-bridge", "--push", "x:1", "--licenses", "none"}, "make licenses writes the file"},
	} {
		err := run(t.Context(), slices.Concat(flags, tt.args), nil, io.Discard)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: %v, want %q", tt.args, err, tt.want)
		}
	}
}

// TestPushImages fails if a release has no image of a program, or if a release candidate becomes the image latest.
func TestPushImages(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: make test runs it")
	}
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	if output, err := exec.CommandContext(t.Context(), "make", "-C", root, "licenses").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	host, tiny, dir := newRegistry(t), bridge(t)[1], t.TempDir()
	for built, arch := range map[string]string{"amd64_v1": "amd64", "arm64_v8.0": "arm64"} { // as goreleaser names them
		program, err := os.ReadFile(filepath.Join(strings.ReplaceAll(tiny, "{arch}", arch), "websocket-bridge"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"clusterpass", "clusterpass-local", "clusterpass-agent", "websocket-bridge"} {
			to := filepath.Join(dir, name+"_linux_"+built)
			if err := errors.Join(os.Mkdir(to, 0o700), os.WriteFile(filepath.Join(to, name), program, 0o600)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, tag := range []string{"v99.0.0", "v99.1.0-rc.1"} {
		cmd := exec.CommandContext(t.Context(), filepath.Join(root, "scripts/push-images"), dir, host, "AWS", tag)
		var stderr bytes.Buffer
		cmd.Stdin, cmd.Stderr = strings.NewReader(password+"\n"), &stderr
		output, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v\n%s%s", err, output, stderr.Bytes())
		}
		var want strings.Builder
		for _, image := range images.All() {
			index, digest := pulled(t, host+"/"+image.Name+":"+tag)
			if manifest, err := index.IndexManifest(); err != nil || len(manifest.Manifests) != 2 {
				t.Errorf("%+v, %v", manifest, err)
			}
			_, _ = fmt.Fprintf(&want, "%s/%s:%s@%s\n", host, image.Name, tag, digest)
			if tag == "v99.0.0" {
				_, _ = fmt.Fprintf(&want, "%s/%s:latest@%s\n", host, image.Name, digest)
			}
		}
		if string(output) != want.String() {
			t.Errorf("it prints\n%swant\n%s", output, want.String())
		}
	}
}

// TestMakeImage fails if make image cannot push the bridge to ECR without Docker.
func TestMakeImage(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: make test runs it")
	}
	host, dir := newRegistry(t), t.TempDir()
	// The first call of describe-repositories fails, as for a missing repository.
	aws := `#!/bin/sh
echo "$@" >> ` + dir + `/calls
case "$*" in
  *describe-repositories*) exit 1 ;;
  *create-repository*) echo ` + host + `/clusterpass-bridge ;;
  *get-login-password*) echo ` + password + ` ;;
esac
`
	if err := os.WriteFile(filepath.Join(dir, "aws"), []byte(aws), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	cmd := exec.CommandContext(t.Context(), "make", "-C", "../../..", "image", "TAG=v1", "PGO=", "ARCH="+runtime.GOARCH)
	output, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	_, digest := pulled(t, host+"/clusterpass-bridge:v1")
	if want := regexp.QuoteMeta(host + "/clusterpass-bridge:v1@" + digest); !regexp.MustCompile(want).Match(output) {
		t.Errorf("it does not print the digest %s:\n%s", digest, output)
	}
	calls, err := os.ReadFile(filepath.Join(dir, "calls"))
	if err != nil || !strings.Contains(string(calls), "ecr create-repository --repository-name clusterpass-bridge") {
		t.Errorf("aws is called with\n%s%v", calls, err)
	}
}
