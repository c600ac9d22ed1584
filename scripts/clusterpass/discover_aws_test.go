package main

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpass/clusterpass/shared/api/cluster/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/awsclient/mototest"
	"github.com/clusterpass/clusterpass/shared/clustertest"
	"github.com/clusterpass/clusterpass/shared/eks/inventory"
)

// fakeEKS returns an endpoint of EKS with clusters by name, since moto's clusters have no API server.
func fakeEKS(t *testing.T, clusters map[string]*clustertest.Member, tags map[string]string) string {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(r.URL.Path, "/clusters/")
		var answer any
		switch m := clusters[name]; {
		case r.URL.Path == "/clusters":
			var names []string
			for name := range clusters {
				names = append(names, name)
			}
			answer = map[string]any{"clusters": names}
		case m == nil:
			w.WriteHeader(http.StatusNotFound)
		default:
			ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: m.Certificate().Raw})
			answer = map[string]any{"cluster": map[string]any{
				"name": name, "endpoint": m.URL, "version": "1.34", "tags": tags, "status": "ACTIVE",
				"certificateAuthority": map[string]string{"data": base64.StdEncoding.EncodeToString(ca)},
			}}
		}
		_ = json.NewEncoder(w).Encode(answer)
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

// awsEnvironment makes the command use moto with patches, and for EKS another endpoint unless that is "".
func awsEnvironment(t *testing.T, eksURL string, patches ...string) {
	t.Helper()
	moto, err := mototest.Start(patches...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(moto.Close)
	for k, v := range map[string]string{
		"AWS_ENDPOINT_URL": moto.URL, "AWS_ENDPOINT_URL_EKS": cmp.Or(eksURL, moto.URL), "AWS_REGION": "eu-central-1",
		"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_CONFIG_FILE": "/dev/null",
		"AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
	} {
		t.Setenv(k, v)
	}
}

// An administrator registers all clusters of an account by one command, and again after a cluster was added.
func TestDiscoverRegistersClustersOfAWS(t *testing.T) {
	member := func() *clustertest.Member {
		return clustertest.NewMember(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) })
	}
	clusters := map[string]*clustertest.Member{"Shop_EU": member(), "lab": member()}
	awsEnvironment(t, fakeEKS(t, clusters, map[string]string{"team": "shop", "cost center": "a b", "aws:x": "y"}))
	c := clusterpass{"dir:" + t.TempDir()}

	out, err := c.run(t, "cluster", "discover", "--aws")
	if err != nil || !strings.Contains(out, "shop-eu   no") || !strings.Contains(out, "lab       no") {
		t.Errorf("a list: %v\n%s", err, out)
	}
	if out, err := c.run(t, "cluster", "list"); err != nil || strings.Contains(out, "lab") {
		t.Errorf("a list registers: %v\n%s", err, out)
	}
	out, err = c.run(t, "cluster", "discover", "--aws", "--register", "--skip-check", "--call-role", "gateway")
	if err != nil || !strings.Contains(out, `cluster "shop-eu" is registered`) {
		t.Errorf("registration: %v\n%s", err, out)
	}
	out, err = c.run(t, "cluster", "show", "shop-eu")
	for _, want := range []string{
		"team: shop", `clusterpass.io/aws-account: "123456789012"`, "topology.kubernetes.io/region: eu-central-1",
		"apiEndpoint: " + clusters["Shop_EU"].URL,
	} {
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("the cluster has no %q: %v\n%s", want, err, out)
		}
	}
	if strings.Contains(out, "cost center") || strings.Contains(out, "aws:x") {
		t.Errorf("tags that are no labels are stored:\n%s", out)
	}
	out, err = c.run(t, "cluster", "discover", "--aws", "--register", "--skip-check")
	if err != nil || !strings.Contains(out, "shop-eu   yes") || strings.Contains(out, "is registered") {
		t.Errorf("again: %v\n%s", err, out)
	}
	clusters["LAB"] = member()
	out, err = c.run(t, "cluster", "discover", "--aws")
	if err != nil || !strings.Contains(out, "lab-eu-central-1   no") {
		t.Errorf("a name in use: %v\n%s", err, out)
	}
}

// A platform team finds and registers the clusters of all its accounts and regions by one command. ResourceRegistries
// select clusters by account, region and tags.
func TestDiscoverCoversAccountsAndRegionsOfAWS(t *testing.T) {
	const own, other = "123456789012", "210987654321" // the first is moto's account
	t.Setenv("EKS_CA", base64.StdEncoding.EncodeToString([]byte(testCA(t))))
	awsEnvironment(t, "", "testdata/eks.py")
	createEKS(t, "", "eu-central-1", "shop")
	createEKS(t, "arn:aws:iam::"+other+":role/discover", "us-east-1", "lab")
	c := clusterpass{"dir:" + t.TempDir()}
	query := []string{
		"cluster", "discover", "--aws", "--accounts", own + "," + other, "--regions", "eu-central-1,us-east-1",
		"--role", "discover",
	}
	wantRows := func(registered string, out string) {
		t.Helper()
		for _, row := range []string{
			"shop-" + own + " " + registered + " " + own + " eu-central-1 shop ",
			"lab-" + other + " " + registered + " " + other + " us-east-1 lab ",
		} {
			if text := strings.Join(strings.Fields(out), " "); !strings.Contains(text, row) {
				t.Errorf("no row %q:\n%s", row, out)
			}
		}
	}
	out, err := c.run(t, query...)
	if err != nil {
		t.Fatal(err, out)
	}
	wantRows("no", out)
	if out, err = c.run(t, append(query, "--register", "--skip-check")...); err != nil {
		t.Fatal(err, out)
	}
	if out, err = c.run(t, query...); err != nil {
		t.Fatal(err, out)
	}
	wantRows("yes", out)
	out, err = c.run(t, "cluster", "show", "lab-"+other)
	for _, want := range []string{
		"team: lab", `clusterpass.io/aws-account: "` + other + `"`, "topology.kubernetes.io/region: us-east-1",
	} {
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("the cluster has no %q: %v\n%s", want, err, out)
		}
	}
}

// createEKS creates a cluster in moto, in the account of a role, or in the caller's own if role is "".
func createEKS(t *testing.T, role, region, name string) {
	t.Helper()
	cfg := mototest.Config(os.Getenv("AWS_ENDPOINT_URL"))
	if role != "" {
		cfg.Credentials = stscreds.NewAssumeRoleProvider(sts.NewFromConfig(cfg), role)
	}
	client := eks.NewFromConfig(cfg, func(o *eks.Options) { o.Region = region })
	_, err := client.CreateCluster(t.Context(), &eks.CreateClusterInput{
		Name: aws.String(name), RoleArn: aws.String("arn:aws:iam::123456789012:role/eks"),
		ResourcesVpcConfig: &ekstypes.VpcConfigRequest{SubnetIds: []string{"subnet-1", "subnet-2"}},
		Tags:               map[string]string{"team": name},
	})
	if err != nil {
		t.Fatal(err)
	}
}

// The gateway must be able to use the credential of a discovered cluster: a check before the registration would fail.
func TestDiscoverChecksClusters(t *testing.T) {
	refusing := clustertest.NewMember(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
	})
	awsEnvironment(t, fakeEKS(t, map[string]*clustertest.Member{"lab": refusing}, nil))
	c := clusterpass{"dir:" + t.TempDir()}
	out, err := c.run(t, "cluster", "discover", "--aws", "--register")
	if err == nil || !strings.Contains(err.Error(), `cluster "lab" of account 123456789012, region eu-central-1`) {
		t.Errorf("%v\n%s", err, out)
	}
	if !slices.ContainsFunc(refusing.Requests(), func(r clustertest.Request) bool {
		return strings.HasPrefix(r.Header.Get("Authorization"), "Bearer k8s-aws-v1.")
	}) {
		t.Errorf("the cluster got %v, want a token of AWS", refusing.Requests())
	}
	if out, err := c.run(t, "cluster", "discover"); err == nil || !strings.Contains(err.Error(), "add --aws") {
		t.Errorf("without --aws: %v\n%s", err, out)
	}
}

// The owner of another account must not get the name that callers expect of a cluster of this account.
func TestNamesOfSeveralAccounts(t *testing.T) {
	found := []inventory.Cluster{
		{Account: "111111111111", Region: "eu-central-1", Name: "prod", Endpoint: "https://a"},
		{Account: "222222222222", Region: "eu-central-1", Name: "prod", Endpoint: "https://b"},
		{Account: "222222222222", Region: "us-east-1", Name: "Prod", Endpoint: "https://c"},
		{Account: "222222222222", Region: "us-east-1", Name: "kept", Endpoint: "https://d"},
	}
	registered := []v1alpha1.Cluster{{
		ObjectMeta: metav1.ObjectMeta{Name: "kept"}, Spec: v1alpha1.ClusterSpec{APIEndpoint: "https://d"},
	}}
	for name, tt := range map[string]struct {
		hasSeveralAccounts bool
		want               []string
	}{
		"one": {false, []string{"prod", "prod-eu-central-1", "prod-us-east-1", "kept"}},
		"several": {true, []string{
			"prod-111111111111", "prod-222222222222", "prod-us-east-1-222222222222", "kept",
		}},
	} {
		var got []string
		for _, target := range nameTargets(found, registered, tt.hasSeveralAccounts) {
			got = append(got, target.name)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: names %q, want %q", name, got, tt.want)
		}
	}
}
