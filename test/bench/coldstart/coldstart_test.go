package coldstart

import (
	"debug/buildinfo"
	"debug/elf"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
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

// TestLibraries fails if the floor of a start links other libraries than the function. testdata/NAMElibraries must
// import what the packages of this module import for functions/NAME.
func TestLibraries(t *testing.T) {
	for _, name := range []string{"proxy", "fleet"} {
		const module = "github.com/clusterpass/clusterpass/"
		imports := func(program string) []string {
			list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-tags", "lambda.norpc", "-f",
				`{{if .Module}}{{if .Module.Main}}{{join .Imports "\n"}}{{end}}{{end}}`, program)
			out, err := list.CombinedOutput()
			if err != nil {
				t.Fatalf("%s: %v\n%s", program, err, out)
			}
			libraries := slices.DeleteFunc(strings.Fields(string(out)), func(path string) bool {
				host, _, _ := strings.Cut(path, "/")
				return strings.HasPrefix(path, module) || !strings.Contains(host, ".")
			})
			slices.Sort(libraries)
			return slices.Compact(libraries)
		}
		got, want := imports("./testdata/"+name+"libraries"), imports(module+"functions/"+name+"/bootstrap")
		if !slices.Equal(got, want) {
			t.Errorf("%slibraries links\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}
