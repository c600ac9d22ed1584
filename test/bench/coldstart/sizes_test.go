package coldstart

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// sizes are those of all programs in bytes, stripped, for Linux on amd64. make build-local builds those below dist.
var sizes = map[string]int64{
	"dist/local/functions/control/bootstrap": 50.2e6,
	"dist/local/functions/fleet/bootstrap":   16.4e6,
	"dist/local/functions/proxy/bootstrap":   13.9e6,
	"dist/local/functions/rotate/bootstrap":  12.3e6,
	"dist/local/clusterpass":                 67.8e6,
	"dist/local/clusterpass-local":           75.2e6,
	"./websocket-bridge":                     74.8e6,
	"./websocket-bridge/agent":               28.7e6,
}

// TestBinarySizes fails if a program has grown or shrunk by more than 5 %. Growth makes images and cold starts slower.
// If the new size is intended, change the table.
func TestBinarySizes(t *testing.T) {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		t.Skip("the table has the sizes for Linux on amd64")
	}
	t.Chdir("../../..")
	for path, want := range sizes {
		t.Run(path, func(t *testing.T) {
			file := path
			if strings.HasPrefix(path, "./") {
				if testing.Short() {
					t.Skip("slow: make test runs it")
				}
				file = build(t, path)
			}
			info, err := os.Stat(file)
			if err != nil {
				t.Fatalf("%v; make build-local builds it", err)
			}
			if got := info.Size(); got > want+want/20 || got < want-want/20 {
				t.Errorf("it has %d bytes, want %d within 5 %%", got, want)
			}
		})
	}
}

// initBytes are the bytes that the package variables and init functions of each function allocate.
var initBytes = map[string]int{"control": 3_173_000, "fleet": 786_000, "proxy": 684_000, "rotate": 678_000}

// TestInitMemory fails if the initialization of a function allocates over 3 % more or less than before. Each cold
// start waits for it. Compiled regular expressions are a frequent reason. If the new value is intended, change
// the table.
func TestInitMemory(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("the table has the values for amd64")
	}
	for name, want := range initBytes {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), "../../../dist/local/functions/"+name+"/bootstrap", "--help")
			cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v; make build-local builds it\n%s", err, out)
			}
			got := 0
			for line := range strings.Lines(string(out)) {
				// init PACKAGE @0.1 ms, 0.01 ms clock, 16 bytes, 1 allocs
				_, rest, isInit := strings.Cut(line, " clock, ")
				bytes := 0
				if _, err := fmt.Sscanf(rest, "%d bytes", &bytes); err == nil && isInit {
					got += bytes
				}
			}
			if got > want+want*3/100 || got < want-want*3/100 {
				t.Errorf("it allocates %d bytes, want %d within 3 %%", got, want)
			}
		})
	}
}

// build builds a package and returns the program. Released gateways are also compiled with a profile.
func build(t *testing.T, path string) string {
	program := filepath.Join(t.TempDir(), "program")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", program, path)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", path, err, out)
	}
	return program
}
