package main

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/infra/aws/canary"
)

// Without samconfig.toml, the template would be generated for other parameters than those of the stack.
func TestNeedsSamconfig(t *testing.T) {
	template, err := os.ReadFile("../../../../../template.yaml")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	var out bytes.Buffer
	o := canary.Options{Preset: "AllAtOnce", Time: time.Now()}
	if err := run(&out, o); err == nil || !strings.Contains(err.Error(), "run make deploy without CANARY") {
		t.Errorf("without samconfig.toml: %v", err)
	}
	samconfig := []byte("[default.deploy.parameters]\nparameter_overrides = \"ClientCA=a\"\n")
	err = errors.Join(os.WriteFile("samconfig.toml", samconfig, 0o600), os.WriteFile("template.yaml", template, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	if err := run(&out, o); err != nil || !strings.Contains(out.String(), "AutoPublishAlias: live") {
		t.Errorf("%v, it prints\n%s", err, out.String())
	}
}
