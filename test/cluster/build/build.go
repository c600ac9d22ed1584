// Package build provides the programs of a test cluster (Kubernetes, etcd and kwok). It
// downloads those that package published finds, and builds the others from the Go module proxy, into a cache of the
// user. [Module] builds other pinned programs.
//
// test/cluster/binaries pins the versions. It is a separate Go module, because Kubernetes needs replace directives that
// importing modules do not inherit. The cache directory is named after a hash of pins and build flags. A program is
// renamed into place when it is complete, and a file lock excludes concurrent builds.
package build

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/clusterpass/clusterpass/test/cluster/published"
)

// Environment variables.
const (
	// EnvBinaries names a directory of existing programs. With it, nothing is built or downloaded.
	EnvBinaries = "CLUSTERPASS_KUBE_BINARIES"
	// EnvIndex is the URL of another index of published programs, or NoIndex.
	EnvIndex = "CLUSTERPASS_KUBE_INDEX"
	// NoIndex disables downloads.
	NoIndex = "none"
)

// The programs of a cluster, by file name.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
	Kwok              = "kwok"
	Kwokctl           = "kwokctl"
	Kubectl           = "kubectl"
)

// E2E is the file name of Kubernetes' own end-to-end tests, which only EnsureE2E builds.
const E2E = "e2e.test"

type target struct{ name, pkg string }

// targets are in the order of building: the small one first, so that a broken toolchain shows early.
var targets = []target{
	{Etcd, "go.etcd.io/etcd/server/v3"},
	{APIServer, "k8s.io/kubernetes/cmd/kube-apiserver"},
	{ControllerManager, "k8s.io/kubernetes/cmd/kube-controller-manager"},
	{Scheduler, "k8s.io/kubernetes/cmd/kube-scheduler"},
	{Kwok, "sigs.k8s.io/kwok/cmd/kwok"},
	{Kwokctl, "sigs.k8s.io/kwok/cmd/kwokctl"},
	{Kubectl, "k8s.io/kubernetes/cmd/kubectl"},
}

// minimalTargets are the programs of a minimal cluster. kubectl is the last, as in targets.
var minimalTargets = []target{targets[0], targets[1], targets[len(targets)-1]}

var e2eTargets = []target{{E2E, "k8s.io/kubernetes/test/e2e"}}

func (t target) goCommand() []string {
	if strings.HasSuffix(t.name, ".test") {
		return []string{"test", "-c"}
	}
	return []string{"build", "-v"}
}

// Binaries are programs that are ready to run.
type Binaries struct {
	Dir     string // contains every program; a directory given by the caller may lack kubectl if PATH has one
	Kubectl string // path of kubectl: PATH's own, or the one in Dir where PATH has none
}

// Path returns the path of the program called name.
func (b Binaries) Path(name string) string { return filepath.Join(b.Dir, name) }

// Ensure returns the programs. It downloads missing ones of the pinned release, or builds them, with their progress. It
// needs the go command, and a working directory inside the checkout.
func Ensure(ctx context.Context, progress io.Writer) (Binaries, error) {
	return provide(ctx, targets, func(source *source, _ []target) (string, error) {
		if err := source.addPublished(ctx, targets, progress); err != nil {
			return "", err
		}
		return source.ensure(ctx, targets, progress)
	})
}

// EnsureMinimal returns the programs of a minimal cluster: etcd, kube-apiserver and kubectl. Programs that are built
// come first. Otherwise it downloads those of any patch release of the pinned minor version, or builds them.
func EnsureMinimal(ctx context.Context, progress io.Writer) (Binaries, error) {
	return provide(ctx, minimalTargets, func(source *source, wanted []target) (string, error) {
		return source.find(ctx, wanted, progress)
	})
}

// provide returns the programs of the directory that EnvBinaries names, or of get. get may omit kubectl if PATH has
// one.
func provide(
	ctx context.Context, all []target, get func(source *source, wanted []target) (string, error),
) (Binaries, error) {
	kubectl, err := exec.LookPath(Kubectl)
	if err != nil && !errors.Is(err, exec.ErrNotFound) {
		return Binaries{}, fmt.Errorf("find kubectl in PATH: %w", err)
	}
	wanted := all
	if kubectl != "" {
		wanted = all[:len(all)-1]
	}
	dir := os.Getenv(EnvBinaries)
	if dir != "" {
		dir, err = existingDir(dir, wanted)
	} else {
		var source *source
		if source, err = pins(ctx); err == nil {
			dir, err = get(source, wanted)
		}
	}
	if err != nil {
		return Binaries{}, err
	}
	if kubectl == "" {
		kubectl = filepath.Join(dir, Kubectl)
	}
	return Binaries{Dir: dir, Kubectl: kubectl}, nil
}

// EnsureE2E returns the path of Kubernetes' end-to-end tests of the clusters' version. It builds a missing program like
// Ensure. A directory that EnvBinaries names must have it.
func EnsureE2E(ctx context.Context, progress io.Writer) (string, error) {
	dir := os.Getenv(EnvBinaries)
	if dir != "" {
		dir, err := existingDir(dir, e2eTargets)
		if err != nil {
			return "", err
		}
		return filepath.Join(dir, E2E), nil
	}
	source, err := pins(ctx)
	if err != nil {
		return "", err
	}
	if dir, err = source.ensure(ctx, e2eTargets, progress); err != nil {
		return "", err
	}
	return filepath.Join(dir, E2E), nil
}

func existingDir(dir string, wanted []target) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("%s: %w", EnvBinaries, err)
	}
	if none := missing(dir, wanted); len(none) > 0 {
		return "", fmt.Errorf("%s=%s lacks %s: put the programs there, or unset the variable to have them built",
			EnvBinaries, dir, strings.Join(none.names(), ", "))
	}
	return dir, nil
}

type targetList []target

func (l targetList) names() []string {
	names := make([]string, len(l))
	for i, t := range l {
		names[i] = t.name
	}
	return names
}

func missing(dir string, wanted []target) targetList {
	var none targetList
	for _, t := range wanted {
		info, err := os.Stat(filepath.Join(dir, t.name))
		if err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
			none = append(none, t)
		}
	}
	return none
}

type source struct {
	dir     string // the module
	cache   string // the user's cache for this project
	folder  string // the folder of built programs in the cache
	sums    []byte // go.mod and go.sum
	version string // of Kubernetes
	flags   []string
}

func pins(ctx context.Context) (*source, error) {
	s, err := newSource(ctx, "test/cluster/binaries", "kube")
	if err != nil {
		return nil, err
	}
	version, err := required(string(s.sums), "k8s.io/kubernetes")
	if err != nil {
		return nil, err
	}
	s.setVersion(version)
	return s, nil
}

// newSource returns the source of the module in a directory of this checkout.
func newSource(ctx context.Context, module, folder string) (*source, error) {
	root, err := moduleRoot(ctx)
	if err != nil {
		return nil, err
	}
	cache, err := cacheDir()
	if err != nil {
		return nil, err
	}
	s := &source{dir: filepath.Join(root, filepath.FromSlash(module)), cache: cache, folder: folder}
	mod, err := os.ReadFile(filepath.Join(s.dir, "go.mod"))
	if err != nil {
		return nil, fmt.Errorf("read the pinned versions: %w", err)
	}
	sum, err := os.ReadFile(filepath.Join(s.dir, "go.sum"))
	if err != nil {
		return nil, fmt.Errorf("read the pinned versions: %w", err)
	}
	s.sums = append(mod, sum...)
	s.flags = []string{"-mod=readonly", "-buildvcs=false", "-trimpath", "-ldflags=-s -w"}
	return s, nil
}

// CompilerFlags returns the flag of go build for the compiler, as the Makefile sets it, so that no package is compiled
// twice. It does not change what the programs do, so the key has no part of it.
func CompilerFlags(ctx context.Context) string {
	const heap = "-d=gcstart=256"
	flags := "-gcflags=all=-dwarf=false"
	if exec.CommandContext(ctx, "go", "tool", "compile", heap, "-V").Run() == nil {
		flags += " " + heap
	}
	return flags
}

// environment returns the environment of builds. The caller's flags and workspace are for its own module. An empty
// GOFLAGS would not replace that of go env -w. Without cgo the programs run anywhere.
func environment() []string {
	return append(os.Environ(), "GOFLAGS=-trimpath", "GOWORK=off", "CGO_ENABLED=0")
}

// setVersion sets the version of Kubernetes, which its programs print.
func (s *source) setVersion(version string) {
	s.version = version
	s.flags[len(s.flags)-1] = "-ldflags=" + ldflags(version)
}

func (s *source) key() string {
	h := sha256.New()
	h.Write(s.sums)
	_, _ = fmt.Fprintln(h, runtime.GOOS, runtime.GOARCH, s.flags) // a hash never fails
	return hex.EncodeToString(h.Sum(nil))[:16]
}

// builtDir returns the directory of the programs that are built.
func (s *source) builtDir() string { return filepath.Join(s.cache, s.folder, s.key()) }

// find returns the directory of programs that are built, or else published, or else built now.
func (s *source) find(ctx context.Context, wanted []target, progress io.Writer) (string, error) {
	if len(missing(s.builtDir(), wanted)) == 0 {
		return s.builtDir(), nil
	}
	minor := s.version[:strings.LastIndex(s.version, ".")]
	if dir, err := s.download(ctx, minor, progress); err != nil || dir != "" {
		return dir, err
	}
	return s.ensure(ctx, wanted, progress)
}

// addPublished adds the published programs of exactly the pinned release to those that are built.
func (s *source) addPublished(ctx context.Context, wanted []target, progress io.Writer) error {
	released := slices.DeleteFunc(missing(s.builtDir(), wanted), func(t target) bool {
		return !slices.Contains(minimalTargets, t)
	})
	if len(released) == 0 {
		return nil
	}
	dir, err := s.download(ctx, s.version, progress)
	if err != nil || dir == "" {
		return err
	}
	if err := os.MkdirAll(s.builtDir(), 0o755); err != nil {
		return fmt.Errorf("make the cache of programs: %w", err)
	}
	for _, t := range released {
		err := os.Link(filepath.Join(dir, t.name), filepath.Join(s.builtDir(), t.name))
		if err != nil && !errors.Is(err, fs.ErrExist) { // another run may have added it meanwhile
			return fmt.Errorf("keep %s: %w", t.name, err)
		}
	}
	return nil
}

// download returns the directory of published programs of a release, or of the newest one of a minor version. It
// returns "" if there are none, or if they cannot be reached.
func (s *source) download(ctx context.Context, version string, progress io.Writer) (string, error) {
	from := &published.Source{
		Index: cmp.Or(os.Getenv(EnvIndex), published.IndexURL), Cache: filepath.Join(s.cache, "published"),
		Progress: progress,
	}
	if dir := from.Cached(version); dir != "" || from.Index == NoIndex {
		return dir, nil
	}
	dir, err := from.Download(ctx, version)
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	if err != nil {
		report(progress, "published programs of Kubernetes %s cannot be used: %v; building them lasts about 6 minutes on "+
			"two cores\n", version, err)
	}
	return dir, nil
}

func (s *source) ensure(ctx context.Context, wanted []target, progress io.Writer) (string, error) {
	dir := s.builtDir()
	if len(missing(dir, wanted)) == 0 {
		return dir, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make the cache of programs: %w", err)
	}
	unlock, err := lock(ctx, filepath.Join(dir, ".lock"), func() {
		report(progress, "another run is building the same programs; waiting for it\n")
	})
	if err != nil {
		return "", err
	}
	defer unlock()

	todo := missing(dir, wanted) // another run may have built some meanwhile
	start := time.Now()
	for i, t := range todo {
		p := newMeter(progress, fmt.Sprintf("%s (%d/%d)", t.name, i+1, len(todo)))
		if err := s.build(ctx, t, dir, p); err != nil {
			return "", err
		}
	}
	if len(todo) > 0 {
		report(progress, "built %d programs in %s; later runs start at once (%s)\n",
			len(todo), time.Since(start).Round(time.Second), dir)
	}
	return dir, nil
}

func (s *source) build(ctx context.Context, t target, dir string, p *meter) error {
	temp := filepath.Join(dir, "."+t.name+".building")
	defer func() { _ = os.Remove(temp) }() // after success it is not there

	args := append(t.goCommand(), "-o", temp, CompilerFlags(ctx))
	args = append(args, s.flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, t.pkg)...)
	cmd.Dir, cmd.Env = s.dir, environment()
	if err := p.run(cmd); err != nil {
		return fmt.Errorf("build %s: %w", t.name, err)
	}
	if err := os.Rename(temp, filepath.Join(dir, t.name)); err != nil {
		return fmt.Errorf("keep %s: %w", t.name, err)
	}
	return nil
}

func required(mod, module string) (string, error) {
	for line := range strings.Lines(mod) {
		if f := strings.Fields(line); len(f) >= 2 && f[0] == module {
			return f[1], nil
		}
	}
	return "", fmt.Errorf("the pinned versions do not require %s", module)
}

// ldflags returns the flags that set the version of the programs, like Kubernetes' own build.
func ldflags(version string) string {
	major, rest, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	flags := []string{"-s", "-w"}
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		for _, kv := range []string{"gitVersion=" + version, "gitMajor=" + major, "gitMinor=" + minor, "gitTreeState=clean"} {
			flags = append(flags, "-X", pkg+"."+kv)
		}
	}
	return strings.Join(flags, " ")
}

func cacheDir() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the user's cache directory (set HOME or XDG_CACHE_HOME): %w", err)
	}
	return filepath.Join(dir, "clusterpass"), nil
}

// moduleRoot returns the root of this checkout. Embedding could not provide the pins, because it does not cross
// modules.
func moduleRoot(ctx context.Context) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module)
	cmd.Env = append(os.Environ(), "GOWORK=off")
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
		}
		return "", fmt.Errorf("find the Clusterpass checkout (run this inside it): %w", err)
	}
	root := strings.TrimSpace(string(out))
	if _, err := os.Stat(root); errors.Is(err, fs.ErrNotExist) || root == "" {
		return "", fmt.Errorf("the Clusterpass checkout %q is not there", root)
	}
	return root, nil
}

const module = "github.com/clusterpass/clusterpass"
