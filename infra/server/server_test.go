// Package server holds what runs the gateway on a server to the program that it runs.
package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/clusterpass/clusterpass/infra/local/server"
	"github.com/clusterpass/clusterpass/shared/config"
)

const host = "clusterpass.example.com"

// unit is the environment that clusterpass.service gives, and its other settings.
func unit(t *testing.T) (env map[string]string, settings map[string]string) {
	t.Helper()
	text, err := os.ReadFile("clusterpass.service")
	if err != nil {
		t.Fatal(err)
	}
	env, settings = map[string]string{"CLUSTERPASS_HOSTS": host}, map[string]string{} // the first is in the file that the unit wants
	for line := range strings.Lines(string(text)) {
		k, v, ok := strings.Cut(strings.TrimSpace(line), "=")
		if name, value, is := strings.Cut(v, "="); ok && k == "Environment" && is {
			env[name] = value
		} else if ok {
			settings[k] = v
		}
	}
	return env, settings
}

// compose is the environment that compose.yaml gives, and the service.
func compose(t *testing.T) (env map[string]string, service map[string]any) {
	t.Helper()
	text, err := os.ReadFile("compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var doc struct{ Services map[string]map[string]any }
	if err := yaml.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	service = doc.Services["clusterpass"]
	env = map[string]string{}
	given, _ := service["environment"].(map[string]any)
	for k, v := range given {
		value, ok := v.(string)
		if !ok {
			t.Errorf("%s is %v: a string, so that YAML does not change it", k, v)
		}
		// ${NAME:?why} must be given, ${NAME:-default} may be.
		value = regexp.MustCompile(`^\$\{\w+:\?.*\}$`).ReplaceAllString(value, host)
		env[k] = regexp.MustCompile(`^\$\{\w+:-(.*)\}$`).ReplaceAllString(value, "$1")
	}
	return env, service
}

// TestEnvironment has the program read what the unit and the container give it, and serve.
func TestEnvironment(t *testing.T) {
	fromUnit, _ := unit(t)
	fromCompose, _ := compose(t)
	for name, env := range map[string]map[string]string{"clusterpass.service": fromUnit, "compose.yaml": fromCompose} {
		t.Run(name, func(t *testing.T) {
			known := config.Variables(&server.Config{})
			for _, v := range known {
				t.Setenv(v, "")
				if err := os.Unsetenv(v); err != nil {
					t.Fatal(err)
				}
			}
			t.Setenv("KUBECONFIG", "")
			for k, v := range env {
				if !slices.Contains(known, k) {
					t.Errorf("it gives %s, which the program does not read", k)
				}
				t.Setenv(k, v)
			}
			cfg := &server.Config{}
			if err := config.Load(cfg); err != nil {
				t.Fatal(err)
			}
			if !cfg.RefuseLoopback || cfg.Functions != server.Inline || cfg.Audit == "" || !slices.Equal(cfg.Hosts, []string{host}) {
				t.Errorf("%+v", cfg)
			}
			serve(t, cfg)
		})
	}
}

// serve runs the program elsewhere than a server would, and calls it as a client does that has its kubeconfig.
func serve(t *testing.T, cfg *server.Config) {
	t.Helper()
	dir := t.TempDir()
	if !strings.HasPrefix(cfg.Listen, "0.0.0.0:") {
		t.Errorf("it listens on %s, where nobody reaches it", cfg.Listen)
	}
	cfg.TunnelListen = "127.0.0.1:0"
	cfg.Listen, cfg.Data, cfg.Kubeconfig = "0.0.0.0:0", dir, filepath.Join(dir, "kubeconfig")
	if cfg.Audit != "-" {
		cfg.Audit = filepath.Join(dir, "audit.log")
	}
	ctx, cancel := context.WithCancel(t.Context())
	var out bytes.Buffer
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- server.Run(ctx, cfg, server.Output{Progress: &out, Log: io.Discard}, func() { close(ready) })
	}()
	select {
	case <-ready:
	case err := <-ended:
		t.Fatal(err)
	case <-time.After(time.Minute):
		t.Fatal("it does not start")
	}
	url := regexp.MustCompile(`https://\S+`).FindString(out.String())
	if !strings.HasPrefix(url, "https://"+host+":") {
		t.Errorf("clients are told to call %s", url)
	}
	roots := x509.NewCertPool()
	ca, err := os.ReadFile(filepath.Join(dir, "pki", "server-ca.pem"))
	if err != nil || !roots.AppendCertsFromPEM(ca) {
		t.Fatal(err)
	}
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: host, MinVersion: tls.VersionTLS12},
	}}
	resp, err := client.Get(strings.Replace(url, host, "127.0.0.1", 1) + "/clusters/none/version")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("nobody gets %s", resp.Status)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestEnd holds: neither kills the program before it has drained.
func TestEnd(t *testing.T) {
	env, settings := unit(t)
	check := func(what, drain, stop string) {
		d, err1 := time.ParseDuration(drain)
		s, err2 := time.ParseDuration(stop)
		if err1 != nil || err2 != nil || s <= d {
			t.Errorf("%s kills after %s what drains for %s", what, stop, drain)
		}
	}
	check("the unit", env["CLUSTERPASS_DRAIN_TIMEOUT"], settings["TimeoutStopSec"]+"s")
	env, service := compose(t)
	check("the container", env["CLUSTERPASS_DRAIN_TIMEOUT"], service["stop_grace_period"].(string))
	if settings["User"] != "clusterpass" || settings["ProtectSystem"] != "strict" || service["read_only"] != true {
		t.Error("the program may do more than it needs")
	}
	for _, k := range []string{"CLUSTERPASS_DATA", "CLUSTERPASS_KUBECONFIG"} {
		if unitEnv, _ := unit(t); !strings.HasPrefix(unitEnv[k], "/var/lib/"+settings["StateDirectory"]) || !strings.HasPrefix(env[k], "/data") {
			t.Errorf("%s is not where the unit, or the container, keeps things", k)
		}
	}
}
