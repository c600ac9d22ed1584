package images_test

import (
	"archive/tar"
	"bytes"
	"crypto/x509"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/clusterpass/clusterpass/infra/release/images"
)

var packages = map[string]string{
	"clusterpass": "./scripts/clusterpass", "clusterpass-local": "./infra/local",
	"clusterpass-agent": "./websocket-bridge/agent", "websocket-bridge": "./websocket-bridge",
}

var release = images.Release{
	Version: "v0.1.0", Revision: "0123456789abcdef", Created: time.Date(2026, 11, 23, 20, 55, 23, 0, time.UTC),
	Licenses: []byte("Apache License\n"),
}

// compile builds a package for linux, with GOFLAGS of the Makefile if make runs the tests.
func compile(t *testing.T, dir, pkg, arch, out string, more ...string) {
	t.Helper()
	args := append([]string{"build", "-trimpath", "-ldflags", "-s -w", "-o", out}, more...)
	cmd := exec.CommandContext(t.Context(), "go", append(args, pkg)...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", pkg, err, output)
	}
}

// tiny returns a directory of small programs with the names of the product's, for each architecture.
func tiny(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{
		"go.mod": "module tiny\n", "main.go": "package main\n\nfunc main() { println(\"tiny\") }\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, arch := range []string{"amd64", "arm64"} {
		for name := range packages {
			compile(t, dir, ".", arch, filepath.Join(dir, arch, name))
		}
	}
	return filepath.Join(dir, "{arch}")
}

func build(t *testing.T, image images.Image, arches []string, programs string) v1.ImageIndex {
	t.Helper()
	index, err := images.Build(image, arches, programs, t.TempDir(), release)
	if err != nil {
		t.Fatal(err)
	}
	return index
}

// TestEqualProgramsMakeEqualImages fails if users cannot check that an image contains the released programs.
func TestEqualProgramsMakeEqualImages(t *testing.T) {
	programs := tiny(t)
	both := []string{"amd64", "arm64"}
	seen := map[string]string{}
	for _, image := range images.All() {
		t.Run(image.Name, func(t *testing.T) {
			first := build(t, image, both, programs)
			for name := range packages { // neither times nor permissions of the files may reach the image
				for _, arch := range both {
					file := filepath.Join(strings.ReplaceAll(programs, "{arch}", arch), name)
					if err := errors.Join(os.Chtimes(file, time.Now(), time.Now()), os.Chmod(file, 0o750)); err != nil {
						t.Fatal(err)
					}
				}
			}
			digest, err := first.Digest()
			if err != nil {
				t.Fatal(err)
			}
			if again, err := build(t, image, both, programs).Digest(); err != nil || again != digest {
				t.Errorf("the digests are %s and %s, %v", digest, again, err)
			}
			if other := seen[digest.String()]; other != "" {
				t.Errorf("it equals %s", other)
			}
			seen[digest.String()] = image.Name
			manifest, err := first.IndexManifest()
			if err != nil {
				t.Fatal(err)
			}
			for i, m := range manifest.Manifests {
				if m.Platform.OS != "linux" || m.Platform.Architecture != both[i] {
					t.Errorf("the platform is %v, want linux/%s", m.Platform, both[i])
				}
			}
			checkAnnotations(t, manifest.Annotations)
		})
	}
}

func checkAnnotations(t *testing.T, got map[string]string) {
	t.Helper()
	for name, want := range map[string]string{
		"version": "v0.1.0", "revision": "0123456789abcdef", "created": "2026-11-23T20:55:23Z", "licenses": "Apache-2.0",
		"source": "https://github.com/clusterpass/clusterpass",
	} {
		if got["org.opencontainers.image."+name] != want {
			t.Errorf("the annotation %s is %q, want %q", name, got["org.opencontainers.image."+name], want)
		}
	}
}

// TestImagesRun fails if an image lacks what its program needs, contains more, or runs as root.
func TestImagesRun(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: make test runs it")
	}
	dir := t.TempDir()
	for name, pkg := range packages {
		compile(t, "../../..", pkg, runtime.GOARCH, filepath.Join(dir, name))
	}
	for _, image := range images.All() {
		t.Run(image.Name, func(t *testing.T) {
			index := build(t, image, []string{runtime.GOARCH}, dir)
			manifest, err := index.IndexManifest()
			if err != nil {
				t.Fatal(err)
			}
			img, err := index.Image(manifest.Manifests[0].Digest)
			if err != nil {
				t.Fatal(err)
			}
			config, err := img.ConfigFile()
			if err != nil {
				t.Fatal(err)
			}
			checkAnnotations(t, config.Config.Labels)
			if config.Config.User != "65532:65532" || config.Config.StopSignal != "SIGTERM" {
				t.Errorf("%+v", config.Config)
			}
			root := t.TempDir()
			got := unpack(t, img, root)
			want := []string{"etc", "etc/ssl", "etc/ssl/certs", "etc/ssl/certs/ca-certificates.crt", "licenses",
				"licenses/licenses.txt"}
			if image.Data != "" {
				want = append(want, strings.TrimPrefix(image.Data, "/"))
			}
			want = append(want, image.Programs...)
			if slices.Sort(want); !slices.Equal(got, want) {
				t.Errorf("the image has %q, want %q", got, want)
			}
			for _, name := range image.Programs {
				runs(t, root, name)
			}
			if text, err := os.ReadFile(filepath.Join(root, "licenses/licenses.txt")); err != nil ||
				!bytes.Equal(text, release.Licenses) {
				t.Errorf("the licenses are %q, %v", text, err)
			}
			if entrypoint := config.Config.Entrypoint; len(entrypoint) != 1 || entrypoint[0] != "/"+image.Programs[0] {
				t.Errorf("the entrypoint is %q", entrypoint)
			}
		})
	}
}

func unpack(t *testing.T, img v1.Image, root string) (names []string) {
	t.Helper()
	content := mutate.Extract(img)
	defer func() { _ = content.Close() }()
	for tr := tar.NewReader(content); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			slices.Sort(names)
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
		if isData := h.Name == "data"; h.Uid != map[bool]int{true: 65532}[isData] || h.Mode&0o022 != 0 {
			t.Errorf("%s belongs to %d, with mode %o", h.Name, h.Uid, h.Mode)
		}
		path := filepath.Join(root, h.Name)
		if h.Typeflag == tar.TypeDir {
			err = os.Mkdir(path, 0o755)
		} else {
			var data []byte
			if data, err = io.ReadAll(tr); err == nil {
				err = os.WriteFile(path, data, os.FileMode(h.Mode))
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// runs starts a program of an unpacked image. Root starts it in the image, as the image's user.
func runs(t *testing.T, root, name string) {
	t.Helper()
	for _, flag := range []string{"--version", "--help"} {
		cmd := exec.CommandContext(t.Context(), filepath.Join(root, name), flag)
		cmd.Env, cmd.Dir = []string{}, root
		if os.Getuid() == 0 {
			if err := os.Chmod(root, 0o755); err != nil {
				t.Fatal(err)
			}
			cmd.Path, cmd.Dir = "/"+name, "/"
			cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
		}
		output, err := cmd.CombinedOutput()
		if want := map[string]string{"--version": name + " ", "--help": "--version"}[flag]; err != nil ||
			!strings.Contains(string(output), want) {
			t.Errorf("%s %s: %v\n%s", name, flag, err, output)
		}
	}
}

// TestRefusedPrograms fails if an image can contain a program that cannot run in it, or that must not be distributed
// without its licenses.
func TestRefusedPrograms(t *testing.T) {
	programs := tiny(t)
	bridge, err := images.Named("clusterpass-bridge")
	if err != nil {
		t.Fatal(err)
	}
	swapped := strings.ReplaceAll(programs, "{arch}", "arm64")
	dynamic := t.TempDir() // a position-independent executable names the dynamic linker
	compile(t, filepath.Dir(programs), ".", "amd64", filepath.Join(dynamic, "websocket-bridge"), "-buildmode=pie")
	for _, tt := range []struct{ name, arch, programs, want string }{
		{"needs shared libraries", "amd64", dynamic, "build it with CGO_ENABLED=0"},
		{"another architecture", "amd64", swapped, "build it for amd64"},
		{"an unknown architecture", "riscv64", swapped, "build it for riscv64"},
		{"no program", "amd64", t.TempDir(), "no such file"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := images.Build(bridge, []string{tt.arch}, tt.programs, t.TempDir(), release)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
	_, err = images.Build(bridge, []string{"amd64"}, programs, t.TempDir(), images.Release{Version: "v0.1.0"})
	if err == nil || !strings.Contains(err.Error(), "make licenses") {
		t.Errorf("without licenses: %v", err)
	}
	if _, err := images.Named("bridge"); err == nil || !strings.Contains(err.Error(), "clusterpass-bridge") {
		t.Error(err)
	}
}

// TestRoots fails if a program in an image cannot verify public certificates, such as those of AWS.
func TestRoots(t *testing.T) {
	roots, err := images.Roots()
	if err != nil {
		t.Fatal(err)
	}
	if pool := x509.NewCertPool(); !pool.AppendCertsFromPEM(roots) {
		t.Error("no certificate can be read")
	}
	for _, ca := range []string{"Amazon Root CA 1", "ISRG Root X1", "DigiCert Global Root G2", "GTS Root R1"} {
		if !bytes.Contains(roots, []byte("CN="+ca)) {
			t.Errorf("the root %s is missing", ca)
		}
	}
	if n := bytes.Count(roots, []byte("BEGIN CERTIFICATE")); n < 100 {
		t.Errorf("%d roots", n)
	}
}
