package kubernetes

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/clusterpass/clusterpass/shared/hub"
	"github.com/clusterpass/clusterpass/shared/objects"
)

// pageSize is the maximum number of Records in one response of the API server. A Record has up to 520 KiB.
const pageSize = 100

type recordList struct {
	Metadata struct {
		ResourceVersion string `json:"resourceVersion"`
		Continue        string `json:"continue"`
	} `json:"metadata"`
	Items []record `json:"items"`
}

// List implements objects.Store. All pages have the state of the first, unless the API server has compacted it.
func (s *Store) List(ctx context.Context, prefix string, limit int, cont string) (objects.Page, error) {
	if _, _, err := objects.SplitPrefix(prefix); err != nil {
		return objects.Page{}, err
	}
	var (
		page  = objects.Page{Remaining: -1}
		token string
	)
	if cont != "" {
		from, next, err := parseContinue(cont, prefix)
		if err != nil {
			return objects.Page{}, err
		}
		page.Revision, token = from.Revision, next
	}
	for {
		n := pageSize
		if limit > 0 {
			n = min(n, limit-len(page.Objects))
		}
		next, err := s.listSome(ctx, &page, prefix, n, token)
		if err != nil {
			return objects.Page{}, s.fail("list", prefix, err)
		}
		if token = next; token == "" {
			page.Remaining = 0
			return page, nil
		}
		if limit > 0 && len(page.Objects) == limit {
			last := page.Objects[limit-1].Key
			page.Continue = objects.Continue{Revision: page.Revision, After: last}.String() + "." +
				base64.RawURLEncoding.EncodeToString([]byte(token))
			return page, nil
		}
	}
}

// parseContinue splits a continue token into its position and the API server's token.
func parseContinue(cont, prefix string) (objects.Continue, string, error) {
	i := max(0, strings.LastIndex(cont, "."))
	from, err := objects.ParseContinue(cont[:i], prefix)
	if err != nil {
		return from, "", err
	}
	token, err := base64.RawURLEncoding.DecodeString(cont[i+1:])
	if err != nil || len(token) == 0 {
		return from, "", fmt.Errorf("%w: continue token %.64q: list from the start", objects.ErrInvalid, cont)
	}
	return from, string(token), nil
}

// listSome adds at most n Records to page, and returns the API server's token for the next ones.
func (s *Store) listSome(ctx context.Context, page *objects.Page, prefix string, n int, token string) (string, error) {
	query := url.Values{
		"labelSelector": {resourceLabel + "=" + labelOf(prefix)}, "limit": {strconv.Itoa(n)},
	}
	if token != "" {
		query.Set("continue", token)
	}
	var list recordList
	err := s.client.Do(ctx, hub.Request{Method: http.MethodGet, Path: s.path(), Query: query}, &list)
	var expired *hub.Error
	if errors.As(err, &expired) && hub.FaultOf(err) == hub.Expired && expired.Continue != "" && token != "" {
		// The state of the first page is compacted. The API server offers the rest in its present state.
		query.Set("continue", expired.Continue)
		err = s.client.Do(ctx, hub.Request{Method: http.MethodGet, Path: s.path(), Query: query}, &list)
	}
	if err != nil {
		return "", err
	}
	if page.Revision == 0 {
		if page.Revision, err = parseRevision(list.Metadata.ResourceVersion); err != nil {
			return "", err
		}
	}
	for _, r := range list.Items {
		if !strings.HasPrefix(r.Key, prefix) {
			continue
		}
		o, err := r.object()
		if err != nil {
			return "", err
		}
		page.Objects = append(page.Objects, o)
	}
	return list.Metadata.Continue, nil
}
