package gateway_test

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/test/e2e"
)

// TestSmuggling: a client must not become another user by forged identity headers.
func TestSmuggling(t *testing.T) {
	e2e.Grant(t, "member1", "smuggler")
	_, root := e2e.Caller(t)
	cfg, err := clientcmd.BuildConfigFromFlags("", e2e.CertificateKubeconfig(t, "smuggler", "thieves"))
	if err != nil {
		t.Fatal(err)
	}
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	review := func(base string, header http.Header) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, root+base+
			"/apis/authentication.k8s.io/v1/selfsubjectreviews",
			strings.NewReader(`{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header = header.Clone()
		req.Header.Set("Content-Type", "application/json")
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	for _, base := range []string{"/clusters/member1", "/bridge/clusters/member1"} {
		waittest.Until(t, "request is allowed at "+base, func() bool {
			code, _ := review(base, http.Header{})
			return code == http.StatusCreated
		})
		for _, tt := range []struct {
			name   string
			header http.Header
			code   int
		}{
			{"nothing", http.Header{}, 201},
			{"a user", http.Header{"Impersonate-User": {"root"}}, 403},
			{"odd case", http.Header{"iMPERSONATE-uSER": {"root"}}, 403},
			{"two users", http.Header{"Impersonate-User": {"smuggler", "root"}}, 400},
			{"a user in two cases", http.Header{"Impersonate-User": {"smuggler"}, "impersonate-user": {"root"}}, 400},
			{"a group", http.Header{"Impersonate-Group": {"system:masters"}}, 400},
			{"an underscore", http.Header{"Impersonate_User": {"root"}}, 400},
			{"Connection", http.Header{"Connection": {"Impersonate-User, Impersonate-Group, Authorization"}}, 201},
			{"a front proxy's", http.Header{"X-Remote-User": {"root"}, "x-remote-group": {"system:masters"},
				"X_Remote_User": {"root"}}, 201},
			{"a balancer's", http.Header{"X-Amzn-Mtls-Clientcert": {"root"}, "x-amzn-oidc-identity": {"root"}}, 201},
			{"a proxy's", http.Header{"X-Forwarded-For": {"1.2.3.4"}, "Forwarded": {"for=1.2.3.4"}, "X-Original-Url": {"/"}},
				201},
			{"a token", http.Header{"Authorization": {"Bearer root"}, "Cookie": {"a=b"}}, 201},
		} {
			var code int
			var body string
			if tt.code == http.StatusCreated { // each process of the function reads the grant by itself
				waittest.Until(t, "expected status of "+tt.name, func() bool {
					code, body = review(base, tt.header)
					return code == tt.code
				})
			} else if code, body = review(base, tt.header); code != tt.code {
				t.Errorf("%s, %s: %d %s", base, tt.name, code, body)
			}
			if code != http.StatusCreated {
				continue
			}
			var who authenticationv1.SelfSubjectReview
			if err := json.Unmarshal([]byte(body), &who); err != nil {
				t.Fatal(err)
			}
			u := who.Status.UserInfo
			if slices.Sort(u.Groups); u.Username != "smuggler" ||
				!slices.Equal(u.Groups, []string{"system:authenticated", "thieves"}) || len(u.Extra) > 0 || u.UID != "" {
				t.Errorf("%s, %s: the member heard %+v", base, tt.name, u)
			}
		}
	}
}
