package rules

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

type workflow struct {
	On          map[string]any
	Permissions map[string]string
	Jobs        map[string]job
}

type job struct {
	Uses        string
	Needs       any // a name or a list of names
	Environment string
	Permissions map[string]string
	Steps       []struct {
		Uses, Run string
		With      map[string]any
		Env       map[string]string
	}
}

func workflows(t *testing.T) map[string]workflow {
	t.Helper()
	files, err := filepath.Glob("../../.github/workflows/*.yml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	all := map[string]workflow{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		// A YAML 1.1 parser reads the key "on" as true.
		data = regexp.MustCompile(`(?m)^on:`).ReplaceAll(data, []byte(`"on":`))
		var w workflow
		if err := yaml.Unmarshal(data, &w); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all[filepath.Base(file)] = w
	}
	return all
}

func (j job) commands() (all []string) {
	for _, s := range j.Steps {
		if s.Run != "" {
			all = append(all, s.Run)
		}
	}
	return all
}

// TestWorkflowsRunWhatMaintainersRun fails if a check passes only on GitHub, or if a release skips tests.
func TestWorkflowsRunWhatMaintainersRun(t *testing.T) {
	all := workflows(t)
	for file, want := range map[string]string{
		"check.yml": "make check", "test.yml": ".ci/run", "govulncheck.yml": "make vulncheck REQUIRED=yes",
	} {
		for name, j := range all[file].Jobs {
			if got := j.commands(); !slices.Equal(got, []string{want}) {
				t.Errorf("the job %s of %s runs %q, want %q", name, file, got, want)
			}
		}
		if len(all[file].Jobs) != 1 {
			t.Errorf("%s has %d jobs, want 1", file, len(all[file].Jobs))
		}
	}
	for file, triggers := range map[string][]string{
		"check.yml": {"pull_request", "push"}, "test.yml": {"pull_request", "push", "workflow_call"},
		"govulncheck.yml": {"pull_request", "schedule"}, "release.yml": {"push"},
	} {
		for _, trigger := range triggers {
			if _, ok := all[file].On[trigger]; !ok {
				t.Errorf("%s does not run on %s", file, trigger)
			}
		}
	}
	jobs := all["release.yml"].Jobs
	if needs, ok := jobs["release"].Needs.([]any); !ok || !slices.Contains(needs, any("test")) ||
		jobs["test"].Uses != "./.github/workflows/test.yml" {
		t.Errorf("release.yml publishes after %v, with the tests of %q", jobs["release"].Needs, jobs["test"].Uses)
	}
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	for file, w := range all {
		for _, j := range w.Jobs {
			for _, m := range regexp.MustCompile(`\bmake ([\w-]+)`).FindAllStringSubmatch(strings.Join(j.commands(), "\n"), -1) {
				if !regexp.MustCompile(`(?m)^` + m[1] + `:`).Match(makefile) {
					t.Errorf("%s runs make %s, which the Makefile lacks", file, m[1])
				}
			}
		}
	}
}

// TestOnlyTheReleaseHasCredentials fails if a pull request, or a package that builds the console, can publish or sign.
func TestOnlyTheReleaseHasCredentials(t *testing.T) {
	for file, w := range workflows(t) {
		if len(w.Permissions) != 1 || w.Permissions["contents"] != "read" {
			t.Errorf("%s has the permissions %v, want contents: read", file, w.Permissions)
		}
		if _, ok := w.On["pull_request_target"]; ok {
			t.Errorf("%s gives credentials to code of pull requests", file)
		}
		for name, j := range w.Jobs {
			publishes := file == "release.yml" && name == "release"
			if (len(j.Permissions) > 0) != publishes || (j.Environment != "") != publishes {
				t.Errorf("the job %s of %s has the environment %q and permissions %v", name, file, j.Environment, j.Permissions)
			}
			for _, step := range j.Steps {
				if strings.HasPrefix(step.Uses, "actions/checkout@") && step.With["persist-credentials"] != false {
					t.Errorf("the job %s of %s leaves a credential in the checkout", name, file)
				}
				if publishes && (strings.HasPrefix(step.Uses, "actions/setup-node@") ||
					regexp.MustCompile(`\bnpm\b|make console`).MatchString(step.Run)) {
					t.Errorf("packages of npm run beside the credentials of a release: %s%s", step.Uses, step.Run)
				}
				for variable, value := range step.Env {
					if strings.Contains(value, "secrets.") && !publishes {
						t.Errorf("the job %s of %s gets the secret %s", name, file, variable)
					}
				}
				// A tag or a branch may contain commands, which GitHub would insert into the script.
				if strings.Contains(step.Run, "${{") {
					t.Errorf("the job %s of %s inserts an expression into a script: %s", name, file, step.Run)
				}
			}
		}
	}
}
