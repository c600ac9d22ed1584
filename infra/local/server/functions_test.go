package server

import (
	"maps"
	"slices"
	"testing"

	"github.com/clusterpass/clusterpass/functions/control"
	"github.com/clusterpass/clusterpass/shared/assembly"
	"github.com/clusterpass/clusterpass/shared/assembly/apiconfig"
	"github.com/clusterpass/clusterpass/shared/config"
)

// TestFunctionsGetEveryVariable fails if functions of the local program ignore a variable that is set for the program.
func TestFunctionsGetEveryVariable(t *testing.T) {
	configured := map[string]string{
		"CLUSTERPASS_AUDIT":                   "/a",
		"CLUSTERPASS_AUDIT_FAIL_CLOSED":       "true",
		"CLUSTERPASS_AUDIT_FILES":             "3",
		"CLUSTERPASS_AUDIT_LOG_GROUP":         "/a/b",
		"CLUSTERPASS_AUDIT_LOG_STREAM_PREFIX": "c/d",
		"CLUSTERPASS_AUDIT_SPOOL":             "7",
		"CLUSTERPASS_AUDIT_UNIDENTIFIED_RATE": "5",
		"CLUSTERPASS_AUDIT_WEBHOOK":           "secret:b",
		"CLUSTERPASS_AUTHENTICATION":          "awsIAM: {gatewayID: g, regions: [eu-west-1]}",
		"CLUSTERPASS_CONTROL_PLANE":           "management",
		"CLUSTERPASS_FLEET_BARE_WRITES":       "none",
		"CLUSTERPASS_FLEET_DEADLINE":          "5s",
		"CLUSTERPASS_LOG_LEVEL":               "WARN",
		"CLUSTERPASS_MAX_PASS_TTL":            "2h0m0s",
		"CLUSTERPASS_PASS_KMS_KEY":            "alias/passes",
		"CLUSTERPASS_STORE":                   "aws:prefix,key=alias/stores",
		"CLUSTERPASS_WEBSOCKET_ORIGINS":       "https://a.example.com,https://b.example.com",
	}
	setAll(t, configured)
	cfg := &Config{}
	if err := config.Load(cfg); err != nil {
		t.Fatal(err)
	}
	ca, err := loadCAs(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	vars := cfg.functionEnvironment(cfg.env(ca, "https://gateway.example.com"), apiconfig.Options{
		ServerCA: assembly.CertificatesOf(ca.server.Cert), PassLimits: cfg.PassLimits,
	})
	for name, value := range configured {
		if vars[name] != value {
			t.Errorf("%s=%q, want %q", name, vars[name], value)
		}
	}
	notLocal := []string{"CLUSTERPASS_BRIDGE_URL", "CLUSTERPASS_CLOUDWATCH_NAMESPACE", "CLUSTERPASS_MTLS_HEADER"}
	for _, name := range config.Variables(&control.Config{}) {
		if _, isSet := vars[name]; isSet == slices.Contains(notLocal, name) {
			t.Errorf("%s is set: %v", name, isSet)
		}
	}
	setAll(t, vars)
	read := &control.Config{}
	if err := config.Load(read); err != nil {
		t.Fatal(err)
	}
	read.MTLSHeader = "" // the default
	if got := config.Environment(read); !maps.Equal(got, vars) {
		t.Errorf("functions read %v, want %v", got, vars)
	}
}

func setAll(t *testing.T, vars map[string]string) {
	for name, value := range vars {
		t.Setenv(name, value)
	}
}

// TestFunctionsAreInline fails if the program starts processes for functions by default. They are for likeness to
// Lambda, and several times slower.
func TestFunctionsAreInline(t *testing.T) {
	if cfg := newConfig(t, t.TempDir()); cfg.Functions != Inline {
		t.Errorf("functions are %q", cfg.Functions)
	}
}
