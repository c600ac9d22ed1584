package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"
)

// The fleet of checkScale is smaller than that of scale, so that a run lasts a minute.
const (
	checkMembers = 100
	checkPods    = 200 // of each member
	checkWatch   = 20 * time.Second
)

// checkScale checks the answers of a large fleet without measuring them. Each list must have every pod of every cluster
// once, and a watch every event in order.
func checkScale(ctx context.Context, out *report) (err error) {
	dir, err := os.MkdirTemp("", "clusterpass-scale-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	f, err := startScaleFleet(ctx, nil, dir, standIns{Members: checkMembers, Pods: checkPods, Events: 1})
	if err != nil {
		return err
	}
	defer f.stop()
	for _, w := range []endpoint{f.plain, f.qualified} {
		for _, limit := range []int{0, 500, checkMembers*checkPods - 1} {
			pages, err := checkLists(ctx, w, limit)
			if err != nil {
				return fmt.Errorf("%s, limit %d: %w", w.name, limit, err)
			}
			_, _ = fmt.Fprintf(out, "%s, limit %d: each of %d pods once, in %d pages\n", w.name, limit,
				checkMembers*checkPods, pages)
		}
	}
	return watchAllMembers(ctx, out, f, checkMembers, nil, churnOptions{duration: checkWatch, rate: 1})
}

// podPage is what checkLists reads of a list.
type podPage struct {
	Metadata struct{ Continue string }
	Items    []struct {
		Metadata struct {
			Name        string
			Annotations struct {
				Cluster string `json:"resource.karmada.io/cached-from-cluster"`
			}
		}
	}
}

// checkLists reads all pods in pages of limit, or in one list. It returns the number of pages.
func checkLists(ctx context.Context, w endpoint, limit int) (pages int, err error) {
	seen := map[[2]string]bool{} // clusters and names
	count := map[string]int{}    // by cluster
	for next := ""; ; {
		page, err := readPage(ctx, w, limit, next)
		if err != nil {
			return 0, err
		}
		pages++
		if limit > 0 && len(page.Items) > limit {
			return 0, fmt.Errorf("page %d has %d pods", pages, len(page.Items))
		}
		for _, item := range page.Items {
			name, cluster, _ := strings.Cut(item.Metadata.Name, "@")
			if annotated := item.Metadata.Annotations.Cluster; cluster == "" {
				cluster = annotated
			}
			if seen[[2]string{cluster, name}] {
				return 0, fmt.Errorf("pod %s of cluster %q comes twice", name, cluster)
			}
			seen[[2]string{cluster, name}] = true
			count[cluster]++
		}
		if next = page.Metadata.Continue; next == "" {
			break
		}
	}
	if len(count) != checkMembers {
		return 0, fmt.Errorf("there are pods of %d clusters, want %d", len(count), checkMembers)
	}
	for cluster, n := range count {
		if n != checkPods {
			return 0, fmt.Errorf("cluster %q has %d pods, want %d", cluster, n, checkPods)
		}
	}
	return pages, nil
}

func readPage(ctx context.Context, w endpoint, limit int, next string) (*podPage, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	query := url.Values{}
	if limit > 0 {
		query.Set("limit", fmt.Sprint(limit))
	}
	if next != "" {
		query.Set("continue", next)
	}
	resp, err := openAs(ctx, w, podsPath+"?"+query.Encode(), "")
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	page := &podPage{}
	return page, json.NewDecoder(resp.Body).Decode(page)
}
