package kubernetes

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/clusterpass/clusterpass/shared/hub"
	"github.com/clusterpass/clusterpass/shared/secrets"
)

// TestDeleteOnlyOwnSecrets: a Secret that another program made under the same name must not be deleted. The same is
// true of one that replaces the gateway's own meanwhile.
func TestDeleteOnlyOwnSecrets(t *testing.T) {
	for name, tt := range map[string]struct {
		edit      func(*secret)
		conflicts int
		want      error
		deletions int
	}{
		"own":              {func(*secret) {}, 0, nil, 1},
		"replaced":         {func(*secret) {}, 2, nil, 3},
		"of another type":  {func(s *secret) { s.Type = "Opaque" }, 0, secrets.ErrInvalid, 0},
		"of another name":  {func(s *secret) { s.Metadata.Annotations[nameAnnotation] = "b" }, 0, secrets.ErrInvalid, 0},
		"without our name": {func(s *secret) { s.Metadata.Annotations = nil }, 0, secrets.ErrInvalid, 0},
	} {
		t.Run(name, func(t *testing.T) {
			deletions := 0
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodDelete {
					body, _ := io.ReadAll(r.Body)
					if !strings.Contains(string(body), `"preconditions":{"uid":"u","resourceVersion":"7"}`) {
						t.Errorf("deletion with %s", body)
					}
					if deletions++; deletions <= tt.conflicts {
						w.WriteHeader(http.StatusConflict)
					}
					_, _ = io.WriteString(w, "{}")
					return
				}
				s := newSecret("a", secrets.NewValue([]byte("v")))
				s.Metadata.UID, s.Metadata.ResourceVersion = "u", "7"
				tt.edit(s)
				if err := json.NewEncoder(w).Encode(s); err != nil {
					t.Error(err)
				}
			}))
			defer srv.Close()
			u, err := url.Parse(srv.URL)
			if err != nil {
				t.Fatal(err)
			}
			client := hub.New(hub.Config{Transport: srv.Client().Transport, Server: u, Namespace: "store"})
			if err := New(client).Delete(t.Context(), "a"); !errors.Is(err, tt.want) || deletions != tt.deletions {
				t.Errorf("%v after %d deletions, want %v after %d", err, deletions, tt.want, tt.deletions)
			}
		})
	}
}
