package kubelet

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/clusterpass/clusterpass/test/kubelet/expansion"
)

// RootVariable is the environment variable with a container's own directory, below which its volumes are mounted.
const RootVariable = "CONTAINER_ROOT"

type environment struct {
	names  []string
	values map[string]string
}

func (e *environment) set(name, value string) {
	if _, ok := e.values[name]; !ok {
		e.names = append(e.names, name)
	}
	e.values[name] = value
}

// process returns the environment for a container in the directory dir. The pod's variables override those of every
// container.
func (e *environment) process(api *corev1.Pod, dir string) []string {
	all := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "HOSTNAME=" + api.Name, RootVariable + "=" + dir}
	for _, name := range e.names {
		all = append(all, name+"="+e.values[name])
	}
	return all
}

func (p *pod) newEnvironment(ctx context.Context, api *corev1.Pod, spec *corev1.Container) (*environment, error) {
	e := &environment{values: make(map[string]string)}
	for _, from := range spec.EnvFrom {
		data, err := p.envFrom(ctx, api, from)
		if err != nil {
			return nil, err
		}
		for _, key := range slices.Sorted(maps.Keys(data)) {
			e.set(from.Prefix+key, data[key])
		}
	}
	for _, v := range spec.Env {
		value, ok, err := expansion.Expand(v.Value, e.values), true, error(nil)
		if v.ValueFrom != nil {
			value, ok, err = p.valueFrom(ctx, api, v.ValueFrom)
		}
		if err != nil {
			return nil, fmt.Errorf("environment variable %s: %w", v.Name, err)
		}
		if ok {
			e.set(v.Name, value)
		}
	}
	return e, nil
}

func (p *pod) envFrom(ctx context.Context, api *corev1.Pod, from corev1.EnvFromSource) (map[string]string, error) {
	switch {
	case from.ConfigMapRef != nil:
		return p.configMap(ctx, api, from.ConfigMapRef.Name, from.ConfigMapRef.Optional)
	case from.SecretRef != nil:
		return p.secret(ctx, api, from.SecretRef.Name, from.SecretRef.Optional)
	}
	return nil, nil
}

// valueFrom resolves a reference. ok is false if it is optional and its target is missing.
func (p *pod) valueFrom(ctx context.Context, api *corev1.Pod, from *corev1.EnvVarSource) (value string, ok bool,
	err error) {
	var data map[string]string
	var what, key string
	var optional *bool
	switch {
	case from.FieldRef != nil:
		value, err = p.field(api, from.FieldRef.FieldPath)
		return value, true, err
	case from.ConfigMapKeyRef != nil:
		ref := from.ConfigMapKeyRef
		what, key, optional = "configmap "+ref.Name, ref.Key, ref.Optional
		data, err = p.configMap(ctx, api, ref.Name, ref.Optional)
	case from.SecretKeyRef != nil:
		ref := from.SecretKeyRef
		what, key, optional = "secret "+ref.Name, ref.Key, ref.Optional
		data, err = p.secret(ctx, api, ref.Name, ref.Optional)
	default:
		return "", false, fmt.Errorf("this kind of valueFrom is not supported by the process kubelet")
	}
	if err != nil {
		return "", false, err
	}
	if value, ok = data[key]; !ok && (optional == nil || !*optional) {
		return "", false, fmt.Errorf("couldn't find key %s in %s", key, what)
	}
	return value, ok, nil
}

func (p *pod) field(api *corev1.Pod, path string) (string, error) {
	if name, key, ok := strings.Cut(path, "['"); ok {
		key = strings.TrimSuffix(key, "']")
		switch name {
		case "metadata.labels":
			return api.Labels[key], nil
		case "metadata.annotations":
			return api.Annotations[key], nil
		}
	}
	switch path {
	case "metadata.name":
		return api.Name, nil
	case "metadata.namespace":
		return api.Namespace, nil
	case "metadata.uid":
		return string(api.UID), nil
	case "spec.nodeName":
		return api.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return api.Spec.ServiceAccountName, nil
	case "status.podIP", "status.podIPs":
		return p.address, nil
	case "status.hostIP", "status.hostIPs":
		return p.kubelet.Address, nil
	}
	return "", fmt.Errorf("the field %s is not supported by the process kubelet", path)
}

// configMap returns a config map's data. A missing optional one is empty.
func (p *pod) configMap(ctx context.Context, api *corev1.Pod, name string, optional *bool) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	m, err := p.kubelet.Client.CoreV1().ConfigMaps(api.Namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) && optional != nil && *optional {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	data := make(map[string]string, len(m.Data)+len(m.BinaryData))
	for key, value := range m.BinaryData {
		data[key] = string(value)
	}
	maps.Copy(data, m.Data)
	return data, nil
}

func (p *pod) secret(ctx context.Context, api *corev1.Pod, name string, optional *bool) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	s, err := p.kubelet.Client.CoreV1().Secrets(api.Namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) && optional != nil && *optional {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	data := make(map[string]string, len(s.Data))
	for key, value := range s.Data {
		data[key] = string(value)
	}
	return data, nil
}
