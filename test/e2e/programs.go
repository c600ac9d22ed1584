package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/clusterpass/clusterpass/shared/filelock"
	"github.com/clusterpass/clusterpass/test/cluster/build"
)

var (
	built      = map[string]bool{} // by path
	builtMutex sync.Mutex
)

// Program builds a command into dist/local, with the flags of make build-local, and returns its path. It builds once
// for this process.
func Program(t *testing.T, pkg, name string, flags ...string) string {
	t.Helper()
	root := repository(t)
	path := filepath.Join(root, "dist", "local", name)
	builtMutex.Lock()
	defer builtMutex.Unlock()
	if built[path] {
		return path
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	dist, err := os.OpenRoot(filepath.Join(root, "dist", "local"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = dist.Close() }()
	// A cleanup may be the first to need the program. The context of t has ended then.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), Patience)
	defer cancel()
	// Other packages of tests may build the same program now.
	unlock, err := filelock.Lock(ctx, dist, ".lock", filelock.Exclusive)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unlock.Close() }()
	args := append([]string{"build", "-trimpath", "-ldflags", "-s -w", build.CompilerFlags(ctx)}, flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, "-o", path, "./"+pkg)...)
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", pkg, err, out)
	}
	built[path] = true
	return path
}

func functionsDir(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"control", "fleet", "proxy"} {
		Program(t, "functions/"+name+"/bootstrap", "functions/"+name+"/bootstrap", "-tags", "lambda.norpc")
	}
	return filepath.Join(repository(t), "dist", "local", "functions")
}

func repository(t *testing.T) string {
	t.Helper()
	for dir, err := os.Getwd(); ; dir = filepath.Dir(dir) {
		if err != nil || dir == filepath.Dir(dir) {
			t.Fatalf("find the root of the checkout: no directory above has a go.mod: %v", err)
		}
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
	}
}
