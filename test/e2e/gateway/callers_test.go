package gateway_test

import (
	"context"
	"io"
	"net/http"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/test/e2e"
)

// TestManyCallers fails if one of 256 concurrent calls to a cluster fails, with functions as processes or inline.
func TestManyCallers(t *testing.T) {
	client, root := e2e.Caller(t)
	for name, prefix := range map[string]string{"processes": "", "inline": "/bridge"} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), waittest.Patience)
			defer cancel()
			var calls errgroup.Group
			for range 256 {
				calls.Go(func() error {
					req, err := http.NewRequestWithContext(ctx, http.MethodGet,
						root+prefix+"/clusters/member1/api/v1/namespaces/default", nil)
					if err != nil {
						return err
					}
					resp, err := client.Do(req)
					if err != nil {
						return err
					}
					defer func() { _ = resp.Body.Close() }()
					body, err := io.ReadAll(resp.Body)
					if err == nil && resp.StatusCode != http.StatusOK {
						t.Errorf("%s: %s", resp.Status, body)
					}
					return err
				})
			}
			if err := calls.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
}
