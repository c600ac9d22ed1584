package aws

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/clusterpass/clusterpass/shared/awsclient/mototest"
)

const region = "eu-central-1"

type account struct {
	t   *testing.T
	url string
}

// startMoto starts the moto of all tests, since a start needs more time than most tests. It ends with this process.
var startMoto = sync.OnceValues(func() (*mototest.Server, error) {
	return mototest.Start("testdata/cloudformation.py")
})

// newAccount resets moto and returns an empty account. Tests share moto, so they may not run in parallel.
func newAccount(t *testing.T) account {
	t.Helper()
	moto, err := startMoto()
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range map[string]string{
		"AWS_ENDPOINT_URL": moto.URL, "AWS_REGION": region, "AWS_DEFAULT_REGION": region, "AWS_ACCESS_KEY_ID": "test",
		"AWS_SECRET_ACCESS_KEY": "test", "DIST": emptyFunctions(t),
	} {
		t.Setenv(k, v)
	}
	a := account{t, moto.URL}
	a.call("moto", http.MethodPost, "/moto-api/reset", "", "")
	return a
}

// emptyFunctions returns a directory with a zip for each function, as DIST has them. moto stores them and never runs
// them.
func emptyFunctions(t *testing.T) string {
	t.Helper()
	dist := t.TempDir()
	for _, fn := range []string{"proxy", "fleet", "control", "rotate"} {
		file := filepath.Join(dist, "arm64", fn+".zip")
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("PK\x05\x06"+strings.Repeat("\x00", 18)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dist
}

func (a account) call(service, method, path, target, body string) []byte {
	a.t.Helper()
	req, err := http.NewRequestWithContext(a.t.Context(), method, a.url+path, strings.NewReader(body))
	if err != nil {
		a.t.Fatal(err)
	}
	req.Header.Set("Authorization",
		"AWS4-HMAC-SHA256 Credential=test/20200101/"+region+"/"+service+"/aws4_request, SignedHeaders=host, Signature=0")
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if target != "" {
		req.Header.Set("X-Amz-Target", target)
		req.Header.Set("Content-Type", "application/x-amz-json-1.1")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		a.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode > 299 {
		a.t.Fatalf("%s %s: %s %v %s", service, path+target, resp.Status, err, b)
	}
	return b
}

func (a account) json(into any, service, method, path, target, body string) {
	a.t.Helper()
	if err := json.Unmarshal(a.call(service, method, path, target, body), into); err != nil {
		a.t.Fatal(err)
	}
}

func (a account) query(service, version, element string, params ...string) []string {
	a.t.Helper()
	form := url.Values{"Version": {version}}
	for i := 0; i < len(params); i += 2 {
		form.Set(params[i], params[i+1])
	}
	var values []string
	for _, m := range regexp.MustCompile("<"+element+">([^<]*)<").FindAllSubmatch(
		a.call(service, http.MethodPost, "/", "", form.Encode()), -1) {
		values = append(values, string(m[1]))
	}
	return values
}

func (a account) elb(element string, params ...string) []string {
	a.t.Helper()
	return a.query("elasticloadbalancing", "2015-12-01", element, params...)
}

func (a account) deploy(parameters ...string) map[string]string {
	a.t.Helper()
	out, err := python(append([]string{"infra/localstack/stack.py", "deploy", "test"}, parameters...)...)
	if err != nil {
		a.t.Fatal(err)
	}
	outputs := map[string]string{}
	for line := range strings.Lines(string(out)) {
		k, v, _ := strings.Cut(strings.TrimSpace(line), "=")
		outputs[k] = v
	}
	return outputs
}

func (a account) certificate() string {
	a.t.Helper()
	var made struct{ CertificateArn string }
	a.json(&made, "acm", http.MethodPost, "/", "CertificateManager.RequestCertificate",
		`{"DomainName": "clusterpass.example.com"}`)
	return made.CertificateArn
}

type function struct {
	Environment struct{ Variables map[string]string }
	VpcConfig   struct{ SubnetIDs []string }
	MemorySize  int
}

func (a account) function(name string) function {
	a.t.Helper()
	var f function
	a.json(&f, "lambda", http.MethodGet, "/2015-03-31/functions/"+name+"/configuration", "", "")
	return f
}

type environmentVariable struct {
	Name  string
	Value any
}

func (a account) bridgeEnvironment() map[string]string {
	a.t.Helper()
	var task struct {
		TaskDefinition struct {
			ContainerDefinitions []struct {
				Environment []environmentVariable
				Secrets     []struct{ Name, ValueFrom string }
			}
		}
	}
	a.json(&task, "ecs", http.MethodPost, "/", "AmazonEC2ContainerServiceV20141113.DescribeTaskDefinition",
		`{"taskDefinition": "clusterpass-bridge"}`)
	env := map[string]string{}
	for _, v := range task.TaskDefinition.ContainerDefinitions[0].Environment {
		if v.Name != "" { // moto returns an empty entry for AWS::NoValue
			env[v.Name] = fmt.Sprint(v.Value)
		}
	}
	for _, s := range task.TaskDefinition.ContainerDefinitions[0].Secrets { // ECS reads them when it starts the task
		var secret struct{ SecretString string }
		id := fmt.Sprintf(`{"SecretId": %q}`, s.ValueFrom)
		a.json(&secret, "secretsmanager", http.MethodPost, "/", "secretsmanager.GetSecretValue", id)
		env[s.Name] = secret.SecretString
	}
	return env
}
