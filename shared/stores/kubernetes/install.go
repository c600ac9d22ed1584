package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/clusterpass/clusterpass/shared/hub"
	objectskubernetes "github.com/clusterpass/clusterpass/shared/objects/kubernetes"
)

const (
	fieldManager   = "clusterpass"
	installTimeout = 30 * time.Second
	pollEvery      = 200 * time.Millisecond
)

// Install creates the namespace of the client if it does not exist, applies the CustomResourceDefinition, and waits
// until the hub serves it.
func Install(ctx context.Context, client *hub.Client) error {
	ctx, cancel := context.WithTimeout(ctx, installTimeout)
	defer cancel()
	if err := createNamespace(ctx, client); err != nil {
		return fmt.Errorf("create the namespace %s: %w", client.Namespace(), err)
	}
	var crd map[string]any
	if err := yaml.Unmarshal(objectskubernetes.CRD, &crd); err != nil {
		return err
	}
	name := objectskubernetes.Resource + "." + objectskubernetes.Group
	err := client.Do(ctx, hub.Request{
		Method: http.MethodPatch, Path: "apis/apiextensions.k8s.io/v1/customresourcedefinitions/" + name,
		Query: url.Values{"fieldManager": {fieldManager}, "force": {"true"}},
		Body:  crd, ContentType: "application/apply-patch+yaml", IsIdempotent: true,
	}, nil)
	if err != nil {
		return fmt.Errorf("apply the CustomResourceDefinition %s: %w", name, err)
	}
	store := objectskubernetes.New(objectskubernetes.Config{Client: client})
	for {
		_, err := store.Revision(ctx)
		if err == nil {
			return nil
		}
		if hub.FaultOf(cause(err)) != hub.Missing || hub.Sleep(ctx, pollEvery) != nil {
			return fmt.Errorf("wait for the CustomResourceDefinition %s: %w", name, err)
		}
	}
}

// cause returns the API server's error, or err.
func cause(err error) error {
	var e *hub.Error
	if errors.As(err, &e) {
		return e
	}
	return err
}

func createNamespace(ctx context.Context, client *hub.Client) error {
	err := client.Do(ctx, hub.Request{Method: http.MethodGet, Path: "api/v1/namespaces/" + client.Namespace()}, nil)
	if err == nil || hub.FaultOf(err) != hub.Missing {
		return err
	}
	manifest := json.RawMessage(fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q}}`,
		client.Namespace()))
	err = client.Do(ctx, hub.Request{Method: http.MethodPost, Path: "api/v1/namespaces", Body: manifest}, nil)
	if err != nil && hub.FaultOf(err) == hub.Exists {
		return nil // another program was faster
	}
	return err
}
