package inventory

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"
	"github.com/aws/aws-sdk-go-v2/service/organizations"
	orgtypes "github.com/aws/aws-sdk-go-v2/service/organizations/types"

	"github.com/clusterpass/clusterpass/shared/awsclient/mototest"
)

const (
	own   = "123456789012" // moto's account
	other = "210987654321"
	role  = "clusterpass-discover"
)

func create(t *testing.T, cfg aws.Config, account, region, name string) {
	t.Helper()
	if account != own {
		cfg = assume(cfg, "arn:aws:iam::"+account+":role/"+role)
	}
	_, err := eks.NewFromConfig(cfg, func(o *eks.Options) { o.Region = region }).CreateCluster(t.Context(),
		&eks.CreateClusterInput{
			Name: aws.String(name), RoleArn: aws.String("arn:aws:iam::" + account + ":role/eks"),
			ResourcesVpcConfig: &ekstypes.VpcConfigRequest{SubnetIds: []string{"subnet-1", "subnet-2"}},
			Tags:               map[string]string{"team": name},
		})
	if err != nil {
		t.Fatal(err)
	}
}

func newMoto(t *testing.T) aws.Config {
	t.Helper()
	moto, err := mototest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(moto.Close)
	return mototest.Config(moto.URL)
}

func places(clusters []Cluster) []string {
	var all []string
	for _, c := range clusters {
		all = append(all, strings.Join([]string{c.Account, c.Region, c.Name, c.Tags["team"]}, " "))
	}
	return all
}

// A platform team has clusters in many accounts and regions, and no list of them.
func TestListOverAccountsAndRegions(t *testing.T) {
	cfg := newMoto(t)
	create(t, cfg, own, "eu-central-1", "shop")
	create(t, cfg, own, "us-east-1", "shop")
	create(t, cfg, other, "eu-central-1", "lab")
	for _, tt := range []struct {
		name  string
		query Query
		want  []string
	}{
		{"own account and region", Query{}, []string{own + " eu-central-1 shop shop"}},
		{"regions", Query{Regions: []string{"us-east-1", "eu-central-1"}},
			[]string{own + " eu-central-1 shop shop", own + " us-east-1 shop shop"}},
		{"repeated accounts and regions",
			Query{Accounts: []string{own, own}, Regions: []string{"us-east-1", "us-east-1"}},
			[]string{own + " us-east-1 shop shop"}},
		{"accounts", Query{Accounts: []string{other, own}, Role: role},
			[]string{own + " eu-central-1 shop shop", other + " eu-central-1 lab lab"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			found, failures, err := List(t.Context(), cfg, tt.query)
			if got := places(found); err != nil || len(failures) > 0 || !slices.Equal(got, tt.want) {
				t.Errorf("found %q, failures %v, %v; want %q", got, failures, err, tt.want)
			}
			for _, c := range found {
				if !strings.HasPrefix(c.Endpoint, "https://") || len(c.CA) == 0 || c.Version == "" || c.Partition != "aws" {
					t.Errorf("%+v", c)
				}
			}
		})
	}
}

func TestListOfAnOrganization(t *testing.T) {
	cfg := newMoto(t)
	client := organizations.NewFromConfig(cfg)
	if _, _, err := List(t.Context(), cfg, Query{Organization: true}); err == nil ||
		!strings.Contains(err.Error(), "name accounts with --accounts") {
		t.Errorf("without an organization: %v", err)
	}
	_, err := client.CreateOrganization(t.Context(),
		&organizations.CreateOrganizationInput{FeatureSet: orgtypes.OrganizationFeatureSetAll})
	if err != nil {
		t.Fatal(err)
	}
	made, err := client.CreateAccount(t.Context(),
		&organizations.CreateAccountInput{AccountName: aws.String("lab"), Email: aws.String("lab@example.com")})
	if err != nil {
		t.Fatal(err)
	}
	account := aws.ToString(made.CreateAccountStatus.AccountId)
	create(t, cfg, own, "eu-central-1", "shop")
	create(t, cfg, account, "eu-central-1", "lab")
	found, failures, err := List(t.Context(), cfg, Query{Organization: true, Role: role})
	want := []string{own + " eu-central-1 shop shop", account + " eu-central-1 lab lab"}
	slices.Sort(want)
	if got := places(found); err != nil || len(failures) > 0 || !slices.Equal(got, want) {
		t.Errorf("found %q, failures %v, %v; want %q", got, failures, err, want)
	}
}

// A cluster that is being deleted, or failed, would be registered and then never answer.
func TestListOmitsClustersThatAreNotActive(t *testing.T) {
	var status atomic.Value
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == "/clusters" {
			_, _ = io.WriteString(w, `{"clusters": ["shop"]}`)
			return
		}
		_, _ = fmt.Fprintf(w, `{"cluster": {"name": "shop", "endpoint": "https://eks.example", "version": "1.34",`+
			`"status": %q, "certificateAuthority": {"data": ""}}}`, status.Load())
	}))
	defer srv.Close()
	for text, want := range map[string]int{
		"ACTIVE": 1, "UPDATING": 1, "CREATING": 0, "DELETING": 0, "FAILED": 0, "PENDING": 0,
	} {
		status.Store(text)
		found, err := inRegion(t.Context(), mototest.Config(srv.URL), "aws", own, "eu-central-1")
		if err != nil || len(found) != want {
			t.Errorf("%s: %q, %v", text, places(found), err)
		}
	}
}

// A region that the role may not read must not hide the clusters of the others.
func TestListReportsUnreadableRegions(t *testing.T) {
	moto := newMoto(t)
	create(t, moto, own, "eu-central-1", "shop")
	target, err := url.Parse(aws.ToString(moto.BaseEndpoint))
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.Header.Get("Authorization"), "/us-east-1/eks/") {
			w.Header().Set("X-Amzn-Errortype", "AccessDeniedException")
			http.Error(w, `{"message": "not authorized"}`, http.StatusForbidden)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	defer srv.Close()
	query := Query{Regions: []string{"us-east-1", "eu-central-1"}}
	found, failures, err := List(t.Context(), mototest.Config(srv.URL), query)
	if err != nil || len(found) != 1 || len(failures) != 1 || failures[0].Region != "us-east-1" ||
		!strings.Contains(failures[0].Err.Error(), "AccessDenied") {
		t.Errorf("found %q, failures %v, %v", places(found), failures, err)
	}
}
