// Package aws tests the CloudFormation templates of infra/aws and template.yaml, without AWS.
package aws

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/clusterpass/clusterpass/shared/awsclient/mototest"
)

const pythonTimeout = 5 * time.Minute

const root = "../.."

type template struct {
	Parameters map[string]struct {
		Type, Description, AllowedPattern string
		Default                           *any
		AllowedValues                     []any
	}
	Rules map[string]struct {
		RuleCondition any
		Assertions    []struct {
			Assert            any
			AssertDescription string
		}
	}
	Conditions map[string]any
	Resources  map[string]resource
	Outputs    map[string]struct{ Value any }
}

type resource struct {
	Type                string
	Condition           string
	DeletionPolicy      string
	UpdateReplacePolicy string
	UpdatePolicy        map[string]any
	Properties          map[string]any
}

// translation returns template.yaml and its nested templates as CloudFormation, by path.
var translation = sync.OnceValues(func() (map[string]json.RawMessage, error) { return translate("template.yaml") })

// translate returns a template in the place of template.yaml, and its nested ones.
func translate(file string) (map[string]json.RawMessage, error) {
	out, err := python("infra/localstack/stack.py", "translate", file)
	if err != nil {
		return nil, err
	}
	var all map[string]json.RawMessage
	return all, json.Unmarshal(out, &all)
}

func translated(t *testing.T) map[string]json.RawMessage {
	t.Helper()
	all, err := translation()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func load(t *testing.T) map[string]*template {
	t.Helper()
	return decode(t, translated(t))
}

func decode(t *testing.T, translated map[string]json.RawMessage) map[string]*template {
	t.Helper()
	all := map[string]*template{}
	for path, text := range translated {
		all[path] = &template{}
		if err := json.Unmarshal(text, all[path]); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// python runs a program of Python at the root of the checkout, and returns its standard output.
func python(args ...string) ([]byte, error) {
	if err := trackFiles(); err != nil {
		return nil, err
	}
	interpreter, err := mototest.Python("moto", "boto3", "cfnlint", "samtranslator")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), pythonTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, interpreter, args...)
	cmd.Dir = root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("python %s: %w\n%s%s", strings.Join(args, " "), err, out, stderr.Bytes())
	}
	return out, err
}

// trackFiles stats the files that child processes read, so that go test repeats these tests after a change.
func trackFiles() error {
	for _, pattern := range []string{"template.yaml", "infra/aws/*.py", "infra/aws/*.yaml", "infra/aws/testdata/*",
		"infra/aws/rules/*.go", "infra/localstack/*", "Makefile", "scripts/deploy"} {
		names, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return err
		}
		for _, name := range names {
			if _, err := os.Stat(name); err != nil {
				return err
			}
		}
	}
	return nil
}

// render formats a value of a template. Computed parts become ${...}. For Fn::If it returns both values.
func render(v any) []string {
	switch v := v.(type) {
	case nil:
		return nil
	case string:
		return []string{v}
	case []any:
		var all []string
		for _, e := range v {
			all = append(all, render(e)...)
		}
		return all
	case map[string]any:
		switch {
		case v["Ref"] == "AWS::NoValue":
			return nil
		case v["Ref"] != nil:
			return []string{fmt.Sprintf("${%v}", v["Ref"])}
		case v["Fn::GetAtt"] != nil:
			return []string{"${" + strings.Join(render(v["Fn::GetAtt"]), ".") + "}"}
		case v["Fn::Sub"] != nil:
			return render(v["Fn::Sub"])
		case v["Fn::If"] != nil:
			return render(v["Fn::If"].([]any)[1:])
		}
	}
	return []string{fmt.Sprint(v)}
}

func get(v any, keys ...string) any {
	for _, k := range keys {
		m, _ := v.(map[string]any)
		v = m[k]
	}
	return v
}

func of(all map[string]*template, typ string) map[string]resource {
	found := map[string]resource{}
	for path, tmpl := range all {
		for id, r := range tmpl.Resources {
			if r.Type == typ {
				found[path+" "+id] = r
			}
		}
	}
	return found
}

func TestLint(t *testing.T) {
	if testing.Short() {
		t.Skip("slow: make test runs it")
	}
	files := []string{"template.yaml"}
	nested, err := filepath.Glob(root + "/infra/aws/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range nested {
		files = append(files, "infra/aws/"+filepath.Base(f))
	}
	// Only the template of make deploy CANARY=… nests canary.yaml.
	if all := load(t); len(all) != len(files)-1 {
		t.Errorf("template.yaml nests %d templates of %v", len(all)-1, files[1:])
	}
	lint(t, translated(t), files...)
}

// lint checks templates and files with cfn-lint.
func lint(t *testing.T, translated map[string]json.RawMessage, files ...string) {
	t.Helper()
	// The translated templates keep their layout, so that their paths are valid. W3002: they must still be packaged.
	dir := t.TempDir()
	for path, tmpl := range translated {
		name := filepath.Join(dir, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, tmpl, 0o600)); err != nil {
			t.Fatal(err)
		}
		files = append(files, name)
	}
	args := append(
		[]string{
			"-c", "import sys; from cfnlint.runner import main; sys.exit(main())", "--non-zero-exit-code", "informational", "-i",
			"W3002", "--",
		}, files...)
	if out, err := python(args...); err != nil {
		t.Error(err)
	} else if len(out) > 0 {
		t.Errorf("%s", out)
	}
}

// TestParameters: each parameter has a description and constraints. Its default is safe, or missing.
func TestParameters(t *testing.T) {
	freeText := []string{"Authentication", "WebsocketOrigins", "PublicSubnetIds", "PrivateSubnetIds"}
	required := []string{"ClientCA"}
	all := load(t)
	for name, p := range all["template.yaml"].Parameters {
		if len(p.Description) < 10 {
			t.Errorf("%s has no description", name)
		}
		if p.Type != "Number" && p.AllowedPattern == "" && p.AllowedValues == nil && !slices.Contains(freeText, name) {
			t.Errorf("%s takes anything", name)
		}
		if (p.Default == nil) != slices.Contains(required, name) {
			t.Errorf("%s: required is %t", name, p.Default == nil)
		}
	}
	for _, want := range [][2]string{
		{"FrontDoor", "alb"}, {"Architecture", "arm64"}, {"NatGateways", "1"}, {"BridgeSpot", "none"}, {"MutualTLS", "off"},
		{"Audit", "-"},
	} {
		if p := all["template.yaml"].Parameters[want[0]]; p.Default == nil || *p.Default != any(want[1]) {
			t.Errorf("the default of %s is not %s", want[0], want[1])
		}
	}
	for id, r := range of(all, "AWS::CloudFormation::Stack") {
		path := r.Properties["TemplateURL"].(string)
		given, _ := r.Properties["Parameters"].(map[string]any)
		for name, p := range all[path].Parameters {
			if p.Description == "" {
				t.Errorf("%s: %s has no description", path, name)
			}
			if _, ok := given[name]; !ok {
				t.Errorf("%s is not given %s", id, name)
			}
		}
		if len(given) != len(all[path].Parameters) {
			t.Errorf("%s is given %d parameters, has %d", id, len(given), len(all[path].Parameters))
		}
	}
	for _, name := range []string{"Url", "BridgeUrl", "Store", "NextCommand", "RotateFunction"} {
		if _, ok := all["template.yaml"].Outputs[name]; !ok {
			t.Errorf("no output %s", name)
		}
	}
}

// TestEveryFunction: every function with a folder is deployed, and built under the name that sam uses.
func TestEveryFunction(t *testing.T) {
	folders, err := filepath.Glob(root + "/functions/*/bootstrap")
	if err != nil || len(folders) == 0 {
		t.Fatal(folders, err)
	}
	makefile, err := os.ReadFile(root + "/Makefile")
	if err != nil {
		t.Fatal(err)
	}
	resources := load(t)["template.yaml"].Resources
	deployed := 0
	for _, r := range resources {
		if r.Type == "AWS::Lambda::Function" {
			deployed++
		}
	}
	for _, folder := range folders {
		name := filepath.Base(filepath.Dir(folder))
		id := strings.ToUpper(name[:1]) + name[1:] + "Function"
		r, ok := resources[id]
		if !ok {
			t.Errorf("functions/%s has no %s in template.yaml", name, id)
			continue
		}
		if got := render(r.Properties["FunctionName"]); got[0] != "${Prefix}-"+name {
			t.Errorf("%s is named %s", id, got)
		}
		if got := render(r.Properties["Runtime"]); got[0] != "provided.al2023" {
			t.Errorf("%s runs on %s", id, got)
		}
		if got := render(r.Properties["Architectures"]); got[0] != "${Architecture}" {
			t.Errorf("%s is built for %s", id, got)
		}
		if !bytes.Contains(makefile, []byte("build-"+id)) {
			t.Errorf("the Makefile has no target build-%s, which sam build calls", id)
		}
	}
	if deployed != len(folders) {
		t.Errorf("%d functions are deployed, %d have folders", deployed, len(folders))
	}
}

// TestDeployNeedsEndpoint: an emulator's script never deploys to AWS itself.
func TestDeployNeedsEndpoint(t *testing.T) {
	t.Setenv("AWS_ENDPOINT_URL", "")
	if _, err := python("infra/localstack/stack.py", "deploy", "name"); err == nil ||
		!strings.Contains(err.Error(), "make deploy") {
		t.Errorf("without an endpoint: %v, want what to do", err)
	}
}
