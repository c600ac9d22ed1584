package build

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"time"
)

// A Tool is a command of this module. It is not rebuilt until Release: start or copy it before.
type Tool struct {
	Path    string
	release func()
}

// Release lets other processes rebuild the tool. Started programs continue.
func (t *Tool) Release() { t.release() }

// FindTool returns the program of a command in a directory. Nothing rebuilds it.
func FindTool(dir, command string) *Tool {
	return &Tool{Path: filepath.Join(dir, path.Base(command)), release: func() {}}
}

// NewTool builds a command of this module. command is its package's path below the module's root. A build of more than
// two seconds is shown on progress.
func NewTool(ctx context.Context, command string, progress io.Writer) (*Tool, error) {
	root, err := moduleRoot(ctx)
	if err != nil {
		return nil, err
	}
	cache, err := cacheDir()
	if err != nil {
		return nil, err
	}
	// The go command relinks only outdated programs. Each checkout has its own file, since two checkouts would relink it
	// alternately.
	dir := filepath.Join(cache, "tools", shortHash(root))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the cache of tools: %w", err)
	}
	tool := filepath.Join(dir, path.Base(command))
	unlock, err := lock(ctx, tool+".lock", func() {})
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-v", "-buildvcs=false", "-trimpath", "-ldflags=-s -w",
		CompilerFlags(ctx), "-o", tool, "./"+command)
	cmd.Dir, cmd.Env = root, environment()
	m := newMeter(progress, command)
	m.delay = 2 * time.Second
	if err := m.run(cmd); err != nil {
		unlock()
		return nil, fmt.Errorf("build %s: %w", command, err)
	}
	return &Tool{Path: tool, release: unlock}, nil
}

// CopyTo copies the program to a path that does not exist.
func (t *Tool) CopyTo(path string) error {
	in, err := os.Open(t.Path)
	if err != nil {
		return fmt.Errorf("copy a tool: %w", err)
	}
	defer in.Close()
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o700)
	if err != nil {
		return fmt.Errorf("copy a tool: %w", err)
	}
	if _, err := io.Copy(out, in); err != nil {
		out.Close()
		return fmt.Errorf("copy a tool: %w", err)
	}
	return out.Close()
}
