// Package mototest runs moto, a fake of AWS, for tests. [Front] adds behaviour of AWS that moto lacks.
package mototest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
)

// PythonEnv names a Python interpreter that has moto.
const PythonEnv = "CLUSTERPASS_PYTHON"

const startTimeout = 2 * time.Minute // for a cold disk on a busy machine

// script runs moto until its standard input ends, as it does when the test process is killed.
const script = `
import logging, runpy, sys
logging.getLogger("werkzeug").setLevel(logging.ERROR)
from moto.server import ThreadedMotoServer
for path in sys.argv[1:]:
    runpy.run_path(path)
server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
print("http://%s:%d" % server.get_host_and_port(), flush=True)
sys.stdin.read()
`

// Server is a running moto.
type Server struct {
	URL   string
	stdin io.Closer
	cmd   *exec.Cmd
}

// Start starts moto on a free loopback port. moto runs the Python files patches first. The caller closes it.
func Start(patches ...string) (*Server, error) {
	python, err := Python("moto", "flask", "flask_cors")
	if err != nil {
		return nil, err
	}
	for _, patch := range patches {
		// go test repeats a test if a file that this process opened has changed. It does not see what Python opens.
		if _, err := os.ReadFile(patch); err != nil {
			return nil, fmt.Errorf("read a patch of moto: %w", err)
		}
	}
	//nolint:gosec // the tester's own interpreter
	cmd := exec.CommandContext(context.Background(), python, append([]string{"-c", script}, patches...)...)
	stderr := &tail{}
	cmd.Stderr = stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start moto: %w", err)
	}
	s := &Server{stdin: stdin, cmd: cmd}
	late := time.AfterFunc(startTimeout, func() { _ = cmd.Process.Kill() })
	line, err := bufio.NewReader(stdout).ReadString('\n')
	late.Stop()
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("moto did not start: %w: %s", err, stderr)
	}
	s.URL = strings.TrimSpace(line)
	return s, nil
}

// Main is the TestMain of a package whose tests share the moto in *moto. It does not return. A package with patches
// calls Start in a test instead, because go test records no files that TestMain opens before m.Run.
func Main(m *testing.M, moto **Server) {
	server, err := Start()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	*moto = server
	code := m.Run()
	server.Close()
	os.Exit(code)
}

// Close stops moto and waits for its end.
func (s *Server) Close() {
	_ = s.stdin.Close()
	late := time.AfterFunc(5*time.Second, func() { _ = s.cmd.Process.Kill() })
	defer late.Stop()
	_ = s.cmd.Wait() // the exit code does not matter
}

// Config returns a configuration for clients of a fake AWS at url. Its HTTP client has no timeout, so that a slow
// machine makes no second attempt.
func Config(url string) aws.Config {
	trackRequirements() // Main calls Python before go test begins to record files
	return aws.Config{
		Region:       "eu-central-1",
		BaseEndpoint: aws.String(url),
		HTTPClient:   &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}},
		Credentials: credentials.NewStaticCredentialsProvider("AKIAIOSFODNN7EXAMPLE",
			"wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", ""),
	}
}

// Python returns PythonEnv, python3 or .venv/bin/python3, whichever has the modules. The error has instructions.
func Python(modules ...string) (string, error) {
	trackRequirements()
	if p := os.Getenv(PythonEnv); p != "" {
		if err := has(p, modules); err != nil {
			return "", fmt.Errorf("%s=%s: %w", PythonEnv, p, err)
		}
		return p, nil
	}
	candidates := []string{"python3"}
	if root, err := root(); err == nil {
		candidates = append(candidates, filepath.Join(root, ".venv", "bin", "python3"))
	}
	var errs []error
	for _, p := range candidates {
		err := has(p, modules)
		if err == nil {
			return p, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", p, err))
	}
	return "",
		fmt.Errorf("no Python with "+strings.Join(modules, ", ")+"; run `make moto`, or set %s: %w", PythonEnv,
			errors.Join(errs...))
}

// trackRequirements makes go test repeat a test if other versions of the Python modules are required.
func trackRequirements() {
	if root, err := root(); err == nil {
		_, _ = os.Stat(filepath.Join(root, "test", "moto", "requirements.txt"))
	}
}

func has(python string, modules []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	// The modules are located but not loaded, which would be slow.
	const look = `import importlib.util, sys; sys.exit(", ".join(m for m in sys.argv[1:] if importlib.util.find_spec(m) ` +
		`is None) or None)`
	//nolint:gosec // the tester's own interpreter
	out, err := exec.CommandContext(ctx, python, append([]string{"-c", look}, modules...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("it lacks modules: %s (%w)", bytes.TrimSpace(out), err)
	}
	return nil
}

func root() (string, error) {
	dir, err := os.Getwd()
	for err == nil {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			err = errors.New("no go.mod above")
		}
		dir = parent
	}
	return "", err
}

type tail struct {
	mu sync.Mutex
	b  []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	t.b = t.b[max(0, len(t.b)-4096):]
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.b)
}
