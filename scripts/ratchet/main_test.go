package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const testConfig = `linters:
  settings:
    funlen: {lines: 5}
    gocyclo: {min-complexity: 3}
    lll: {line-length: 40}
  exclusions:
    rules:
` + firstLine + lastLine + "formatters: {}\n"

// project is a tree of files that ratchet runs on.
type project struct {
	*testing.T
	root string
}

func newProject(t *testing.T, files map[string]string) project {
	p := project{t, t.TempDir()}
	p.write(configFile, testConfig)
	p.write(countsFile, "")
	for name, text := range files {
		p.write(name, text)
	}
	return p
}

func (p project) write(name, text string) {
	p.Helper()
	file := filepath.Join(p.root, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		p.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		p.Fatal(err)
	}
}

func (p project) remove(name string) {
	p.Helper()
	if err := os.Remove(filepath.Join(p.root, name)); err != nil {
		p.Fatal(err)
	}
}

func (p project) read(name string) string {
	p.Helper()
	text, err := os.ReadFile(filepath.Join(p.root, name))
	if err != nil {
		p.Fatal(err)
	}
	return string(text)
}

// run executes a command and returns its output.
func (p project) run(args ...string) (string, error) {
	var out bytes.Buffer
	err := run(p.root, args, &out)
	return out.String(), err
}

func (p project) mustRun(args ...string) string {
	p.Helper()
	out, err := p.run(args...)
	if err != nil {
		p.Fatalf("%q: %v", args, err)
	}
	return out
}

// mustFail expects an error with all texts.
func (p project) mustFail(command string, texts ...string) {
	p.Helper()
	_, err := p.run(command)
	for _, text := range texts {
		if err == nil || !strings.Contains(err.Error(), text) {
			p.Errorf("%q: error %v, want %q in it", command, err, text)
		}
	}
}

const longLine = "// this comment has more characters than the forty that are allowed.\n"

func source(longLines int) string { return "package x\n\n" + strings.Repeat(longLine, longLines) }

func TestCountsMayOnlyFall(t *testing.T) {
	p := newProject(t, map[string]string{"x/x.go": source(3), "docs/a.md": "It takes one. It holds.\n"})
	p.remove(countsFile)
	p.mustFail("check", "rose from 0 to 3")
	p.mustRun("lower") // without a file the counts begin
	if got, want := p.read(countsFile), "docs banned-word 2\nx/x.go lll 3\n"; got != want {
		t.Fatalf("counts are %q, want %q", got, want)
	}
	if got, want := p.mustRun(), "places that break a style rule: banned-word 2, lll 3\n"; got != want {
		t.Errorf("check prints %q, want %q", got, want)
	}

	p.write("x/x.go", source(4))
	p.mustFail("check", "x/x.go: lll rose from 3 to 4", "ratchet list x/x.go")
	p.mustFail("lower", "x/x.go: lll rose from 3 to 4")
	p.mustFail("move", "lll rose from 3 to 4")
	p.write("x/x.go", source(2))
	p.mustFail("check", "x/x.go: lll fell from 3 to 2", "ratchet lower")
	p.mustRun("lower")
	p.mustRun("check")
	p.write("x/x.go", source(3))
	p.mustFail("lower", "x/x.go: lll rose from 2 to 3")
	p.remove("x/x.go")
	p.mustFail("check", "x/x.go: lll fell from 2 to 0")
	p.mustRun("lower")
	if got, want := p.read(countsFile), "docs banned-word 2\n"; got != want {
		t.Errorf("counts are %q, want %q", got, want)
	}
}

func TestMoveAllowsOtherPlacesOfTheSameTotal(t *testing.T) {
	p := newProject(t, map[string]string{"x/x.go": source(3)})
	p.remove(countsFile)
	p.mustRun("lower")
	p.write("x/x.go", source(1))
	p.write("y/y.go", source(2))
	p.mustFail("check", "y/y.go: lll rose from 0 to 2", "ratchet move")
	p.mustFail("lower", "y/y.go: lll rose from 0 to 2")
	p.mustRun("move")
	p.mustRun("check")
	if got, want := p.read(countsFile), "x/x.go lll 1\ny/y.go lll 2\n"; got != want {
		t.Errorf("counts are %q, want %q", got, want)
	}
}

func TestLinterExcludesCountedFiles(t *testing.T) {
	bubble := "func TestB() {\nsynctest.Test(func() { time.Sleep(1) })\n}\n"
	p := newProject(t, map[string]string{"x/x.go": source(1), "x/y_test.go": "package x\n\n" + bubble})
	p.remove(countsFile)
	p.mustRun("lower")
	want := strings.Replace(testConfig, firstLine, firstLine+
		`      - {linters: [lll], path: '^x/x\.go$'}`+"\n"+
		`      - {linters: [forbidigo], path: '^x/y_test\.go$', text: time\.Sleep}`+"\n", 1)
	got := p.read(configFile)
	if got != want {
		t.Errorf("config is:\n%s\nwant:\n%s", got, want)
	}
	p.write(configFile, testConfig)
	p.mustFail("check", ".golangci.yml excludes other files", "ratchet lower")
	p.mustRun("lower")
	if p.read(configFile) != got {
		t.Errorf("config is:\n%s\nwant:\n%s", p.read(configFile), got)
	}
}

func TestListPrintsFindingsBelowPaths(t *testing.T) {
	many, sleep := strings.Repeat("a()\n", 6), "time.Sleep(1)\n"
	p := newProject(t, map[string]string{
		"a/long.go":        "package a\n\nimport (\n\t\"a name that has more than forty characters\"\n)\n\n" + longLine,
		"a/function.go":    "package a\n\nfunc f() {\n" + many + "}\n\nfunc g() {\n" + strings.Repeat("// a\n", 6) + "}\n",
		"a/complex.go":     "package a\n\nfunc f() {\nif a && b || c {\n}\n}\n\nfunc g() {\nif a && b {\n}\n}\n",
		"a/sleep_test.go":  "package a\n\nfunc f() {\n" + sleep + "synctest.Test(func() {\n" + sleep + "})\n" + sleep + "}\n",
		"a/sleep.go":       "package a\n\nfunc f() { time.Sleep(1) }\n",
		"a/generated.go":   "// Code generated by x. DO NOT EDIT.\n\npackage a\n\n" + longLine,
		"a/prose.go":       "// Package a takes one.\npackage a\n",
		"a/testdata/a.go":  "package a\n\n" + longLine,
		"ab/ab.go":         "package ab\n\n" + longLine,
		"dist/a.md":        "It takes.\n",
		".github/a.md":     "It takes.\n",
		".cache/a.md":      "It takes.\n",
		"README.md":        "What it takes, is.\n",
		"a/directive.go":   "package a\n\n//go:generate with more than the forty characters of a line\n",
		"a/testdata/a.txt": "takes",
	})
	inA := strings.Join([]string{
		"a/complex.go:3: gocyclo: f has complexity 4",
		"a/function.go:3: funlen: f has 6 lines",
		"a/long.go:7: lll: 68 characters",
		"a/prose.go:1: banned-word: takes",
		"a/sleep_test.go:4: sleep: time.Sleep in a test",
		"a/sleep_test.go:8: sleep: time.Sleep in a test", "",
	}, "\n")
	if got := p.mustRun("list", "a"); got != inA {
		t.Errorf("got:\n%s\nwant:\n%s", got, inA)
	}
	inAB := "ab/ab.go:3: lll: 68 characters\n"
	if got, want := p.mustRun("list", "./a/long.go", "ab/"), "a/long.go:7: lll: 68 characters\n"+inAB; got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	all := ".github/a.md:1: banned-word: takes.\n" +
		"README.md:1: clause-subject: What it takes, is.\n" +
		"README.md:1: banned-word: takes,\n" + inA + inAB
	if got := p.mustRun("list"); got != all {
		t.Errorf("got:\n%s\nwant:\n%s", got, all)
	}
}

func TestErrorsNameFileAndRemedy(t *testing.T) {
	for name, c := range map[string]struct{ file, text, want string }{
		"a conflict in the counts":   {countsFile, "x lll 1\n<<<<<<< HEAD\n", countsFile + ":2:"},
		"no limits":                  {configFile, "linters: {}\n", "need limits"},
		"no lines for exclusions":    {configFile, strings.Replace(testConfig, lastLine, "", 1), "need these two lines"},
		"a file that does not parse": {"x/x.go", "package", "x/x.go:1"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProject(t, nil)
			p.write(c.file, c.text)
			p.mustFail("check", c.want)
		})
	}
	p := newProject(t, nil)
	p.mustFail("raise", "unknown arguments: raise")
	for _, arg := range []string{"help", "--help"} {
		if out := p.mustRun(arg); out != usage {
			t.Errorf("%s prints %q", arg, out)
		}
	}
	if _, err := p.run("lower", "x"); err == nil || !strings.Contains(err.Error(), "unknown arguments: lower x\n"+usage) {
		t.Errorf("lower with a path: error %v", err)
	}
}
