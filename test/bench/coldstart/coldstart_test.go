package coldstart

import (
	"debug/buildinfo"
	"debug/elf"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"testing"
)

// TestBinaries checks the build settings of the functions. If this fails, cold starts become slower. Only the benchmark
// measures their time, because machines are noisy.
func TestBinaries(t *testing.T) {
	t.Chdir("../../..")
	paths, err := filepath.Glob(builtFunctions)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, path := range paths {
		name := filepath.Base(filepath.Dir(path))
		names[name] = true
		info, err := buildinfo.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []debug.BuildSetting{{Key: "-tags", Value: "lambda.norpc"}, {Key: "-trimpath", Value: "true"},
			{Key: "CGO_ENABLED", Value: "0"}} {
			if !slices.Contains(info.Settings, want) {
				t.Errorf("%s is built without %s=%s", name, want.Key, want.Value)
			}
		}
		if runtime.GOOS == "linux" {
			f, err := elf.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			if f.Section(".symtab") != nil || f.Section(".debug_info") != nil || f.Section(".zdebug_info") != nil {
				t.Errorf("%s is not stripped", name)
			}
			_ = f.Close()
		}
	}
	for name := range goals {
		if !names[name] {
			t.Errorf("%s holds no %s; make build-local builds it", builtFunctions, name)
		}
	}
}
