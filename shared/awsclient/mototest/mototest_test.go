package mototest

import (
	"net/http"
	"os"
	"strings"
	"testing"
)

func TestStart(t *testing.T) {
	s, err := Start()
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.Get(s.URL + "/moto-api/")
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Body.Close()
	if r.StatusCode != http.StatusOK {
		t.Errorf("moto answers %s", r.Status)
	}
	s.Close()
	if state := s.cmd.ProcessState; !state.Success() {
		t.Errorf("moto ended with %s", state)
	}
}

func TestStartWithoutPatch(t *testing.T) {
	if _, err := Start("testdata/nowhere.py"); err == nil || !strings.Contains(err.Error(), "testdata/nowhere.py") {
		t.Errorf("no patch: %v, want its name", err)
	}
}

func TestWithoutMoto(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("PATH", os.DevNull)
	t.Setenv(PythonEnv, "")
	if _, err := Start(); err == nil || !strings.Contains(err.Error(), "run `make moto`") {
		t.Errorf("no Python: %v, want what to do", err)
	}
	t.Setenv(PythonEnv, "/nowhere/python")
	if _, err := Start(); err == nil || !strings.Contains(err.Error(), PythonEnv+"=/nowhere/python") {
		t.Errorf("a wrong Python: %v, want which one", err)
	}
}
