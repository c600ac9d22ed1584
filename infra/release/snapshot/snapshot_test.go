// Package snapshot checks the files of a release: that each exists, runs, and is what its description promises.
package snapshot

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/elf"
	"debug/macho"
	"debug/pe"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const root = "../../.."

// platforms are the systems that each program is released for.
var platforms = map[string][]string{
	"clusterpass":       {"linux_amd64", "linux_arm64", "darwin_amd64", "darwin_arm64", "windows_amd64"},
	"clusterpass-local": {"linux_amd64", "linux_arm64", "darwin_amd64", "darwin_arm64"},
	"clusterpass-agent": {"linux_amd64", "linux_arm64", "darwin_amd64", "darwin_arm64"},
}

// release is a directory with the files of a release.
type release struct {
	dir, version string
	single       bool // for linux_amd64 alone
}

func (r release) has(platform string) bool { return !r.single || platform == "linux_amd64" }

// open returns the release in RELEASE_DIR, or builds one for linux/amd64.
func open(t *testing.T) release {
	t.Helper()
	r := release{dir: os.Getenv("RELEASE_DIR")}
	if r.dir == "" {
		r.dir, r.single = buildSingle(t), true
	}
	var metadata struct{ Version string }
	if err := json.Unmarshal(r.read(t, "metadata.json"), &metadata); err != nil || metadata.Version == "" {
		t.Fatal(metadata, err)
	}
	r.version = metadata.Version
	return r
}

// buildSingle runs goreleaser with the configuration of releases, without the other systems.
func buildSingle(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile("../goreleaser.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var config map[string]any
	if err := yaml.Unmarshal(data, &config); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	config["dist"] = filepath.Join(dir, "dist")
	for _, b := range config["builds"].([]any) {
		build := b.(map[string]any)
		build["goos"], build["goarch"], build["ignore"] = []string{"linux"}, []string{"amd64"}, nil
	}
	delete(config, "signs")
	if data, err = yaml.Marshal(config); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "goreleaser.yaml")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	absolute, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "tool", "-modfile=infra/release/tools/go.mod", "goreleaser", "release",
		"--config", file, "--snapshot", "--clean", "--parallelism", "2")
	cmd.Dir = root
	// Without a remote, goreleaser ignores the commit.
	cmd.Env = append(os.Environ(), "INDEX_TOKEN=", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=remote.origin.url",
		"GIT_CONFIG_VALUE_0=https://github.com/clusterpass/clusterpass",
		"PATH="+filepath.Join(absolute, "dist/tools")+string(os.PathListSeparator)+os.Getenv("PATH"))
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("goreleaser: %v\n%s", err, output)
	}
	return filepath.Join(dir, "dist")
}

func (r release) read(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(r.dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestRelease fails if users cannot install a release by one of the documented methods.
func TestRelease(t *testing.T) {
	r := open(t)
	var files []string // that checksums.txt must list
	for _, program := range []string{"clusterpass", "clusterpass-local", "clusterpass-agent"} {
		for _, platform := range platforms[program] {
			if !r.has(platform) {
				continue
			}
			name := fmt.Sprintf("%s_%s_%s", program, r.version, platform)
			archive := name + map[bool]string{false: ".tar.gz", true: ".zip"}[strings.HasPrefix(platform, "windows")]
			files = append(files, archive, name+".cdx.json")
			t.Run(name, func(t *testing.T) {
				r.checkProgram(t, r.unpack(t, archive), program, platform)
				r.checkSBOM(t, name+".cdx.json", program)
			})
		}
	}
	for _, pkg := range []string{"clusterpass", "clusterpass-server"} {
		for _, arch := range []string{"amd64", "arm64"} {
			if !r.has("linux_" + arch) {
				continue
			}
			for _, format := range []string{".deb", ".rpm"} {
				files = append(files, fmt.Sprintf("%s_%s_%s%s", pkg, r.version, arch, format))
			}
		}
	}
	t.Run("checksums", func(t *testing.T) { r.checkChecksums(t, files) })
	t.Run("formula", r.checkFormula)
	t.Run("krew", r.checkKrew)
	t.Run("deb", r.checkDeb)
	t.Run("rpm", r.checkRPM)
}

// unpack returns the files of an archive by their names.
func (r release) unpack(t *testing.T, archive string) map[string][]byte {
	t.Helper()
	data, content := r.read(t, archive), map[string][]byte{}
	if strings.HasSuffix(archive, ".zip") {
		z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range z.File {
			in, err := f.Open()
			if err != nil {
				t.Fatal(err)
			}
			if content[f.Name], err = io.ReadAll(in); err != nil {
				t.Fatal(err)
			}
		}
		return content
	}
	gz, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	for tr := tar.NewReader(gz); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return content
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Uname != "root" || h.Uid != 0 {
			t.Errorf("%s in %s belongs to %q, %d", h.Name, archive, h.Uname, h.Uid)
		}
		if content[h.Name], err = io.ReadAll(tr); err != nil {
			t.Fatal(err)
		}
	}
}

func (r release) checkProgram(t *testing.T, content map[string][]byte, program, platform string) {
	t.Helper()
	name := program
	if strings.HasPrefix(platform, "windows") {
		name += ".exe"
	}
	if len(content) != 3 || !bytes.Contains(content["LICENSE"], []byte("Apache License")) ||
		!bytes.Contains(content["licenses.txt"], []byte("k8s.io/client-go")) {
		t.Errorf("the archive has %d files", len(content))
	}
	if got := systemOf(t, content[name]); got != platform {
		t.Errorf("%s is for %s, want %s", name, got, platform)
	}
	if platform != runtime.GOOS+"_"+runtime.GOARCH {
		return
	}
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, content[name], 0o700); err != nil {
		t.Fatal(err)
	}
	want := regexp.MustCompile(`^` + program + ` v` + regexp.QuoteMeta(r.version) + ` \(revision [0-9a-f]{40}, 20\d\d-`)
	if output, err := exec.CommandContext(t.Context(), file, "--version").CombinedOutput(); err != nil ||
		!want.Match(output) {
		t.Errorf("--version: %v\n%s", err, output)
	}
}

func systemOf(t *testing.T, program []byte) string {
	t.Helper()
	in := bytes.NewReader(program)
	if f, err := elf.NewFile(in); err == nil {
		return map[elf.Machine]string{elf.EM_X86_64: "linux_amd64", elf.EM_AARCH64: "linux_arm64"}[f.Machine]
	}
	if f, err := macho.NewFile(in); err == nil {
		return map[macho.Cpu]string{macho.CpuAmd64: "darwin_amd64", macho.CpuArm64: "darwin_arm64"}[f.Cpu]
	}
	if f, err := pe.NewFile(in); err == nil && f.Machine == pe.IMAGE_FILE_MACHINE_AMD64 {
		return "windows_amd64"
	}
	return fmt.Sprintf("no known system, with %d bytes", len(program))
}

func (r release) checkSBOM(t *testing.T, name, program string) {
	t.Helper()
	var sbom struct {
		BOMFormat string
		Metadata  struct {
			Component struct{ Name, Version string }
		}
		Components []struct{ Name, Version string }
	}
	if err := json.Unmarshal(r.read(t, name), &sbom); err != nil {
		t.Fatal(err)
	}
	if sbom.BOMFormat != "CycloneDX" || sbom.Metadata.Component.Version != "v"+r.version {
		t.Errorf("%s: %s, %+v", name, sbom.BOMFormat, sbom.Metadata)
	}
	modules := map[string]string{}
	for _, c := range sbom.Components {
		modules[c.Name] = c.Version
	}
	for _, want := range []string{"k8s.io/apimachinery", "k8s.io/client-go"} {
		if modules[want] == "" {
			t.Errorf("the SBOM of %s lacks %s", program, want)
		}
	}
}

func (r release) checkChecksums(t *testing.T, files []string) {
	var listed []string
	for line := range strings.Lines(string(r.read(t, "checksums.txt"))) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		if got := fmt.Sprintf("%x", sha256.Sum256(r.read(t, name))); got != sum {
			t.Errorf("%s has the checksum %s, and %s is listed", name, got, sum)
		}
		listed = append(listed, name)
	}
	for _, name := range files {
		if !slices.Contains(listed, name) {
			t.Errorf("checksums.txt lacks %s; it has %q", name, listed)
		}
	}
}

func (r release) sum(t *testing.T, name string) string {
	t.Helper()
	return fmt.Sprintf("%x", sha256.Sum256(r.read(t, name)))
}

func (r release) checkFormula(t *testing.T) {
	formula := string(r.read(t, "homebrew/Formula/clusterpass.rb"))
	for _, want := range []string{"class Clusterpass < Formula", `bin.install "clusterpass"`, "kubectl-clusterpass",
		"generate_completions_from_executable", `license "Apache-2.0"`} {
		if !strings.Contains(formula, want) {
			t.Errorf("the formula lacks %q:\n%s", want, formula)
		}
	}
	for _, platform := range platforms["clusterpass"] {
		if strings.HasPrefix(platform, "windows") || !r.has(platform) {
			continue
		}
		name := fmt.Sprintf("clusterpass_%s_%s.tar.gz", r.version, platform)
		if !strings.Contains(formula, name) || !strings.Contains(formula, r.sum(t, name)) {
			t.Errorf("the formula lacks %s or its checksum:\n%s", name, formula)
		}
	}
}

func (r release) checkKrew(t *testing.T) {
	var manifest struct {
		Kind     string
		Metadata struct{ Name string }
		Spec     struct {
			Version, ShortDescription string
			Platforms                 []struct {
				Bin, URI, SHA256 string
				Selector         struct{ MatchLabels struct{ OS, Arch string } }
			}
		}
	}
	if err := yaml.Unmarshal(r.read(t, "krew/clusterpass.yaml"), &manifest); err != nil {
		t.Fatal(err)
	}
	if manifest.Kind != "Plugin" || manifest.Metadata.Name != "clusterpass" || manifest.Spec.Version != "v"+r.version {
		t.Errorf("%+v", manifest)
	}
	var got []string
	for _, p := range manifest.Spec.Platforms {
		name := p.URI[strings.LastIndex(p.URI, "/")+1:]
		if p.SHA256 != r.sum(t, name) || strings.TrimSuffix(p.Bin, ".exe") != "clusterpass" ||
			!strings.HasPrefix(p.URI, "https://github.com/clusterpass/clusterpass/releases/download/v") {
			t.Errorf("%+v", p)
		}
		got = append(got, p.Selector.MatchLabels.OS+"_"+p.Selector.MatchLabels.Arch)
	}
	for _, platform := range platforms["clusterpass"] {
		if r.has(platform) && !slices.Contains(got, platform) {
			t.Errorf("the manifest lacks %s; it has %q", platform, got)
		}
	}
}

// checkRPM reads names in the header, which is not compressed. The test has no rpm.
func (r release) checkRPM(t *testing.T) {
	for name, want := range map[string][]string{
		"clusterpass": {"kubectl-clusterpass"}, "clusterpass-server": {"clusterpass.service", "clusterpass.env", "useradd"},
	} {
		data := r.read(t, fmt.Sprintf("%s_%s_amd64.rpm", name, r.version))
		if !bytes.HasPrefix(data, []byte{0xed, 0xab, 0xee, 0xdb}) {
			t.Errorf("%s is no rpm package", name)
		}
		for _, text := range want {
			if !bytes.Contains(data, []byte(text)) {
				t.Errorf("the rpm package %s lacks %s", name, text)
			}
		}
	}
}
