// Package server tests the systemd unit and the container that run the gateway on a server.
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

func unit(t *testing.T) (env map[string]string, settings map[string]string) {
	t.Helper()
	text, err := os.ReadFile("clusterpass.service")
	if err != nil {
		t.Fatal(err)
	}
	env = map[string]string{"CLUSTERPASS_HOSTS": host} // the unit reads it from its EnvironmentFile
	settings = map[string]string{}
	for line := range strings.Lines(string(text)) {
		k, v, ok := strings.Cut(strings.TrimSpace(line), "=")
		if name, value, isPair := strings.Cut(v, "="); ok && k == "Environment" && isPair {
			env[name] = value
		} else if ok {
			settings[k] = v
		}
	}
	return env, settings
}

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
	variables, _ := service["environment"].(map[string]any)
	for k, v := range variables {
		value, ok := v.(string)
		if !ok {
			t.Errorf("%s is %v; quote it, so that YAML does not change it", k, v)
		}
		// ${NAME:?message} is required, ${NAME:-default} is optional.
		value = regexp.MustCompile(`^\$\{\w+:\?.*\}$`).ReplaceAllString(value, host)
		env[k] = regexp.MustCompile(`^\$\{\w+:-(.*)\}$`).ReplaceAllString(value, "$1")
	}
	return env, service
}

// TestEnvironment fails if the program does not start with the settings of the unit or of the container.
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
					t.Errorf("%s is set, but the program does not read it", k)
				}
				t.Setenv(k, v)
			}
			cfg := &server.Config{}
			if err := config.Load(cfg); err != nil {
				t.Fatal(err)
			}
			if !cfg.RefuseLoopback || cfg.Functions != server.Inline || cfg.Audit == "" ||
				!slices.Equal(cfg.Hosts, []string{host}) {
				t.Errorf("%+v", cfg)
			}
			serve(t, cfg)
		})
	}
}

func serve(t *testing.T, cfg *server.Config) {
	t.Helper()
	dir := t.TempDir()
	if !strings.HasPrefix(cfg.Listen, "0.0.0.0:") {
		t.Errorf("it listens on %s, which other machines cannot reach", cfg.Listen)
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
		t.Fatal("the program does not start")
	}
	url := regexp.MustCompile(`https://\S+`).FindString(out.String())
	if !strings.HasPrefix(url, "https://"+host+":") {
		t.Errorf("the printed URL is %s, want the host %s", url, host)
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
		t.Errorf("a request without a credential: %s, want 401", resp.Status)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestStopTimeouts fails if systemd or Docker kills the program before it has drained. Users would lose open requests.
func TestStopTimeouts(t *testing.T) {
	env, settings := unit(t)
	check := func(name, drain, stop string) {
		d, err1 := time.ParseDuration(drain)
		s, err2 := time.ParseDuration(stop)
		if err1 != nil || err2 != nil || s <= d {
			t.Errorf("%s kills the program after %s, but it drains for %s", name, stop, drain)
		}
	}
	check("the unit", env["CLUSTERPASS_DRAIN_TIMEOUT"], settings["TimeoutStopSec"]+"s")
	env, service := compose(t)
	check("the container", env["CLUSTERPASS_DRAIN_TIMEOUT"], service["stop_grace_period"].(string))
	if settings["User"] != "clusterpass" || settings["ProtectSystem"] != "strict" || service["read_only"] != true {
		t.Error("the program has more permissions than it needs")
	}
	for _, k := range []string{"CLUSTERPASS_DATA", "CLUSTERPASS_KUBECONFIG"} {
		unitEnv, _ := unit(t)
		if !strings.HasPrefix(unitEnv[k], "/var/lib/"+settings["StateDirectory"]) || !strings.HasPrefix(env[k], "/data") {
			t.Errorf("%s is outside the data directory of the unit or of the container", k)
		}
	}
}
