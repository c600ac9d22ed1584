package kubelet

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/clusterpass/clusterpass/test/kubelet/expansion"
)

// serviceAccountPrefix starts the name of the volume that the API server adds to every pod.
const serviceAccountPrefix = "kube-api-access-"

func (p *pod) volumeDir(name string) string { return filepath.Join(p.dir, "volumes", name) }

// makeVolumes creates the pod's volumes, once. An unsupported volume is an error, and the pod does not start.
func (p *pod) makeVolumes(ctx context.Context, api *corev1.Pod) error {
	if p.volumesMade {
		return nil
	}
	for _, v := range api.Spec.Volumes {
		if err := p.makeVolume(ctx, api, v); err != nil {
			return fmt.Errorf("volume %s: %w", v.Name, err)
		}
	}
	p.volumesMade = true
	return nil
}

func (p *pod) makeVolume(ctx context.Context, api *corev1.Pod, v corev1.Volume) error {
	dir := p.volumeDir(v.Name)
	var data map[string]string
	var items []corev1.KeyToPath
	var err error
	switch {
	case v.EmptyDir != nil, isServiceAccount(v):
	case v.HostPath != nil:
		if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
			return err
		}
		if err := os.Symlink(v.HostPath.Path, dir); !os.IsExist(err) {
			return err
		}
		return nil
	case v.ConfigMap != nil:
		items = v.ConfigMap.Items
		data, err = p.configMap(ctx, api, v.ConfigMap.Name, v.ConfigMap.Optional)
	case v.Secret != nil:
		items = v.Secret.Items
		data, err = p.secret(ctx, api, v.Secret.SecretName, v.Secret.Optional)
	default:
		return fmt.Errorf("its type is not supported by the process kubelet")
	}
	if err != nil {
		return err
	}
	if data, err = selectItems(data, items); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for name, content := range data {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			return err
		}
	}
	return nil
}

func selectItems(data map[string]string, items []corev1.KeyToPath) (map[string]string, error) {
	chosen := maps.Clone(data)
	if len(items) > 0 {
		chosen = make(map[string]string, len(items))
	}
	for _, item := range items {
		content, ok := data[item.Key]
		if !ok {
			return nil, fmt.Errorf("couldn't find key %s", item.Key)
		}
		chosen[item.Path] = content
	}
	for path := range chosen {
		if !filepath.IsLocal(path) {
			return nil, fmt.Errorf("the path %q leads out of the volume", path)
		}
	}
	return chosen, nil
}

func isServiceAccount(v corev1.Volume) bool {
	return v.Projected != nil && strings.HasPrefix(v.Name, serviceAccountPrefix)
}

func (p *pod) mount(spec *corev1.Container, dir string, values map[string]string) error {
	for _, m := range spec.VolumeMounts {
		sub := m.SubPath
		if m.SubPathExpr != "" {
			sub = expansion.Expand(m.SubPathExpr, values)
		}
		source := filepath.Join(p.volumeDir(m.Name), filepath.Clean("/"+sub))
		if sub != "" {
			if _, err := os.Stat(source); os.IsNotExist(err) {
				if err := os.MkdirAll(source, 0o700); err != nil {
					return fmt.Errorf("mount %s: %w", m.MountPath, err)
				}
			}
		}
		target := inside(dir, m.MountPath)
		if err := os.MkdirAll(filepath.Dir(target), 0o700); err != nil {
			return fmt.Errorf("mount %s: %w", m.MountPath, err)
		}
		if err := os.Symlink(source, target); err != nil {
			return fmt.Errorf("mount %s: %w", m.MountPath, err)
		}
	}
	return nil
}

func inside(dir, path string) string { return filepath.Join(dir, filepath.Clean("/"+path)) }
