package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

const registry = `
apiVersion: search.karmada.io/v1alpha1
kind: ResourceRegistry
metadata: {name: demo}
spec:
  targetCluster: {}
  resourceSelectors:
  - {apiVersion: v1, kind: Pod}
  - {apiVersion: v1, kind: ConfigMap}
`

const placedConfigMap = `
apiVersion: v1
kind: ConfigMap
metadata:
  name: placed
  annotations: {clusterpass.io/cluster: member2}
data: {from: the fleet}
`

func (d *demo) fleet() error {
	paths := map[string]string{}
	for name, text := range map[string]string{"registry.yaml": registry, "placed.yaml": placedConfigMap} {
		paths[name] = filepath.Join(d.dir, name)
		if err := os.WriteFile(paths[name], []byte(text), 0o600); err != nil {
			return err
		}
	}
	say("Both clusters as one. A ResourceRegistry selects the kinds and the clusters.")
	if err := d.show("--context", "clusterpass", "apply", "-f", paths["registry.yaml"]); err != nil {
		return err
	}
	// Each process of the functions reads the registry by itself.
	lists := func() bool { return d.kubectl(d.pass, io.Discard, "--context", "fleet", "get", "configmaps") == nil }
	for deadline := time.Now().Add(patience); !lists(); {
		if time.Now().After(deadline) {
			return fmt.Errorf("the registry is not effective after %v", patience)
		}
		time.Sleep(time.Second)
	}
	for _, s := range []struct {
		about string
		args  []string
	}{
		{"The pods of all clusters, and where each is.", []string{"get", "pods"}},
		{"Two pods have the name site, so the request names the cluster.", []string{"get", "pod", "site@member2"}},
		{"", []string{"exec", "site@member1", "--", "sh", "-c", "echo I am process $$"}},
		{"Create an object whose annotation names its cluster.", []string{"apply", "-f", paths["placed.yaml"]}},
		{"", []string{"get", "configmap", "placed"}},
		{"Create an object whose name includes its cluster.", []string{"create", "configmap", "named@member1"}},
	} {
		if s.about != "" {
			say("%s", s.about)
		}
		if err := d.show(append([]string{"--context", "fleet"}, s.args...)...); err != nil {
			return err
		}
	}
	return nil
}
