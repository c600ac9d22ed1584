// Package snapshot checks the files of a release: that each exists, runs, and is what its description promises.
package snapshot

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"debug/elf"
	"debug/macho"
	"debug/pe"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

const root = "../../.."

// platforms are the systems that each program is released for.
var platforms = map[string][]string{
	"clusterpass":       {"linux_amd64", "linux_arm64", "darwin_amd64", "darwin_arm64", "windows_amd64"},
	"clusterpass-local": {"linux_amd64", "linux_arm64", "darwin_amd64", "darwin_arm64"},
	"clusterpass-agent": {"linux_amd64", "linux_arm64", "darwin_amd64", "darwin_arm64"},
	"websocket-bridge":  {"linux_amd64", "linux_arm64"}, // for the image, without an archive
}

// gateways are the programs that are compiled with a profile.
var gateways = []string{"clusterpass-local", "websocket-bridge"}

// release is a directory with the files of a release.
type release struct {
	dir            string
	version        string // without v
	revision, date string // hash and time of its commit
	single         bool   // for linux_amd64 alone
}

func (r release) has(platform string) bool { return !r.single || platform == "linux_amd64" }

// open returns the release in RELEASE_DIR, or builds one for linux/amd64.
func open(t *testing.T) release {
	t.Helper()
	r := release{dir: os.Getenv("RELEASE_DIR")}
	if r.dir == "" {
		r.dir, r.single = buildSingle(t), true
	}
	var metadata struct{ Version, Commit string }
	if err := json.Unmarshal(r.read(t, "metadata.json"), &metadata); err != nil || metadata.Version == "" {
		t.Fatal(metadata, err)
	}
	r.version, r.revision = metadata.Version, metadata.Commit
	seconds := strings.TrimSpace(command(t, "git", "-C", root, "log", "-1", "--format=%ct", r.revision))
	commit, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	r.date = time.Unix(commit, 0).UTC().Format(time.RFC3339)
	return r
}

// buildSingle runs goreleaser with the configuration of releases, without the other systems.
func buildSingle(t *testing.T, args ...string) string {
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
	args = append([]string{"tool", "-modfile=infra/release/tools/go.mod", "goreleaser", "release", "--config", file,
		"--snapshot", "--clean", "--parallelism", "1"}, args...) // two would compile the same packages twice
	cmd := exec.CommandContext(t.Context(), "go", args...)
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
	for program, released := range platforms {
		for _, platform := range released {
			if !r.has(platform) {
				continue
			}
			name := fmt.Sprintf("%s_%s_%s", program, r.version, platform)
			files = append(files, name+".cdx.json")
			if program != "websocket-bridge" {
				files = append(files, r.archive(program, platform))
			}
			t.Run(name, func(t *testing.T) {
				r.checkProgram(t, program, platform)
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
	t.Run("images", r.checkImages)
	t.Run("install.md", r.checkInstallPage)
	t.Run("reproduced", r.checkReproduction)
	if r.single {
		t.Run("again", r.checkSecond)
	}
}

// checkSecond makes the release again. Files whose digests differ cannot be verified by users who build them.
func (r release) checkSecond(t *testing.T) {
	again := release{dir: buildSingle(t, "--skip=sbom"), single: true}
	first := string(r.read(t, "checksums.txt"))
	for line := range strings.Lines(string(again.read(t, "checksums.txt"))) {
		if !strings.Contains(first, line) {
			t.Errorf("the second release has the file %sthe first has\n%s", line, first)
		}
	}
}

func (r release) archive(program, platform string) string {
	format := ".tar.gz"
	if strings.HasPrefix(platform, "windows") {
		format = ".zip"
	}
	return fmt.Sprintf("%s_%s_%s%s", program, r.version, platform, format)
}

// program returns the content of a program. The bridge has no archive.
func (r release) program(t *testing.T, program, platform string) []byte {
	t.Helper()
	if program != "websocket-bridge" {
		content := r.unpack(t, r.archive(program, platform))
		if len(content) != 3 || !bytes.Contains(content["LICENSE"], []byte("Apache License")) ||
			!bytes.Contains(content["licenses.txt"], []byte("k8s.io/client-go")) {
			t.Errorf("the archive has the files %q", slices.Sorted(maps.Keys(content)))
		}
		if strings.HasPrefix(platform, "windows") {
			program += ".exe"
		}
		return content[program]
	}
	found, err := filepath.Glob(filepath.Join(r.dir, program+"_"+platform+"*", program))
	if err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	data, err := os.ReadFile(found[0])
	if err != nil {
		t.Fatal(err)
	}
	return data
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

// checkProgram runs a program that is for this system. In others, it searches for the version.
func (r release) checkProgram(t *testing.T, program, platform string) {
	t.Helper()
	content := r.program(t, program, platform)
	if got := systemOf(t, content); got != platform {
		t.Errorf("%s is for %s, want %s", program, got, platform)
	}
	if profile := profileOf(t, content); (profile != "") != slices.Contains(gateways, program) {
		t.Errorf("%s for %s is compiled with the profile %q", program, platform, profile)
	}
	if platform != runtime.GOOS+"_"+runtime.GOARCH {
		for _, want := range []string{"v" + r.version, r.revision, r.date} {
			if !bytes.Contains(content, []byte(want)) {
				t.Errorf("%s for %s does not contain %s", program, platform, want)
			}
		}
		return
	}
	file := filepath.Join(t.TempDir(), program)
	if err := os.WriteFile(file, content, 0o700); err != nil {
		t.Fatal(err)
	}
	version := "v" + r.version + " (revision " + r.revision + ", " + r.date + ", "
	if got := command(t, file, "--version"); !strings.HasPrefix(got, program+" "+version) {
		t.Errorf("--version prints %s", got)
	}
	if program != "clusterpass" {
		return
	}
	if got := command(t, file, "version", "--client"); !strings.HasPrefix(got, "clusterpass  "+version) {
		t.Errorf("version prints %s", got)
	}
}

// profileOf returns the name of the profile with which a program was compiled, or "".
func profileOf(t *testing.T, program []byte) string {
	t.Helper()
	info, err := buildinfo.Read(bytes.NewReader(program))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range info.Settings {
		if s.Key == "-pgo" {
			return s.Value
		}
	}
	return ""
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
	for _, want := range []string{"k8s.io/apimachinery", "golang.org/x/net"} {
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

const downloads = "https://github.com/clusterpass/clusterpass/releases/download/"

var formulaFile = regexp.MustCompile(`url "([^"]+)"\s+sha256 "([0-9a-f]{64})"`)

func (r release) checkFormula(t *testing.T) {
	formula := string(r.read(t, "homebrew/Formula/clusterpass.rb"))
	for _, want := range []string{"class Clusterpass < Formula", `bin.install "clusterpass"`, "kubectl-clusterpass",
		"generate_completions_from_executable", `license "Apache-2.0"`} {
		if !strings.Contains(formula, want) {
			t.Errorf("the formula lacks %q:\n%s", want, formula)
		}
	}
	sums := map[string]string{} // by URL
	for _, m := range formulaFile.FindAllStringSubmatch(formula, -1) {
		sums[m[1]] = m[2]
	}
	for _, platform := range platforms["clusterpass"] {
		if strings.HasPrefix(platform, "windows") || !r.has(platform) {
			continue
		}
		url := downloads + "v" + r.version + "/" + r.archive("clusterpass", platform)
		if sums[url] != r.sum(t, r.archive("clusterpass", platform)) {
			t.Errorf("the formula lacks %s or its checksum:\n%s", url, formula)
		}
		delete(sums, url)
	}
	if len(sums) > 0 {
		t.Errorf("the formula has other files: %q", sums)
	}
	// scripts/newest decides about the formula and the krew manifest.
	if n := bytes.Count(r.read(t, "artifacts.json"), []byte(`"skip_upload":"true"`)); n != 2 {
		t.Errorf("a version that is not the newest replaces %d of 2 indexes", 2-n)
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
		platform := p.Selector.MatchLabels.OS + "_" + p.Selector.MatchLabels.Arch
		name := r.archive("clusterpass", platform)
		if p.SHA256 != r.sum(t, name) || p.URI != downloads+"v"+r.version+"/"+name || r.unpack(t, name)[p.Bin] == nil {
			t.Errorf("%+v", p)
		}
		got = append(got, platform)
	}
	for _, platform := range platforms["clusterpass"] {
		if r.has(platform) && !slices.Contains(got, platform) {
			t.Errorf("the manifest lacks %s; it has %q", platform, got)
		}
	}
}
