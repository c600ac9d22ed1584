package kubelet

import (
	"context"
	"crypto/tls"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// AddressAnnotation gives a pod a loopback address of its own, and runs its HTTP probes there. Its value is a network
// such as 127.77.0.0/24. The pod gets the first address that no other pod of the kubelet has.
const AddressAnnotation = "process-kubelet/address"

// NewNetwork returns a random network for AddressAnnotation, so that test runs of one machine rarely share one.
func NewNetwork() string { return fmt.Sprintf("127.%d.%d.0/24", 64+rand.N(64), rand.N(256)) }

func hasOwnAddress(api *corev1.Pod) bool { return api.Annotations[AddressAnnotation] != "" }

// newAddress returns the address of a new pod. All of 127.0.0.0/8 is this machine. k.mu must be locked.
func (k *Kubelet) newAddress(api *corev1.Pod) string {
	if !hasOwnAddress(api) {
		return podIP
	}
	if api.Status.PodIP != "" { // another kubelet ran it
		return api.Status.PodIP
	}
	used := map[string]bool{}
	for _, p := range k.pods {
		used[p.address] = true
	}
	network, err := netip.ParsePrefix(api.Annotations[AddressAnnotation])
	if err == nil && network.Addr().IsLoopback() {
		for a := network.Masked().Addr().Next(); network.Contains(a); a = a.Next() {
			if !used[a.String()] {
				return a.String()
			}
		}
	}
	k.Log.Warn("a pod gets no address of its own", "pod", podName(api), "network", api.Annotations[AddressAnnotation])
	return podIP
}

// startProbes runs the HTTP probes of a container until the run ends. A container without probes is ready at once.
func (p *pod) startProbes(api *corev1.Pod, spec *corev1.Container, r *run) {
	if !hasOwnAddress(api) {
		return
	}
	r.unstarted.Store(spec.StartupProbe != nil)
	r.unready.Store(spec.ReadinessProbe != nil)
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // as the kubelet does
	}}
	ctx, cancel := context.WithCancel(context.Background())
	p.kubelet.workers.Go(func() { <-r.done; cancel() })
	probe := func(probe *corev1.Probe, changed func(ok bool) (done bool)) {
		p.follow(ctx, client, spec, probe, changed)
	}
	// A failed container ends like a deleted one, and its policy restarts it.
	end := func(ok bool) bool {
		if !ok {
			r.stop()
			select {
			case <-r.done:
			case <-time.After(terminationGrace(api)):
				r.kill()
			}
		}
		return !ok
	}
	p.kubelet.workers.Go(func() {
		probe(spec.StartupProbe, func(ok bool) bool {
			r.unstarted.Store(!ok)
			p.notify()
			return ok || end(false)
		})
		var others sync.WaitGroup
		others.Go(func() {
			probe(spec.ReadinessProbe, func(ok bool) bool { r.unready.Store(!ok); p.notify(); return false })
		})
		others.Go(func() { probe(spec.LivenessProbe, end) })
		others.Wait()
	})
}

// follow probes until ctx ends or changed returns true. It calls changed when a threshold is reached.
func (p *pod) follow(ctx context.Context, client *http.Client, spec *corev1.Container, probe *corev1.Probe,
	changed func(ok bool) (done bool)) {
	if probe == nil || probe.HTTPGet == nil {
		return // other probes are not supported
	}
	url, err := p.probeURL(spec, probe.HTTPGet)
	succeeded, failed := int32(0), int32(0)
	for pause := time.Duration(probe.InitialDelaySeconds) * time.Second; ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		pause = time.Duration(probe.PeriodSeconds) * time.Second
		if err == nil && answers(ctx, client, url, time.Duration(probe.TimeoutSeconds)*time.Second) {
			succeeded, failed = succeeded+1, 0
		} else {
			succeeded, failed = 0, failed+1
		}
		if ctx.Err() == nil && (succeeded == probe.SuccessThreshold && changed(true) ||
			failed == probe.FailureThreshold && changed(false)) {
			return
		}
	}
}

func (p *pod) probeURL(spec *corev1.Container, get *corev1.HTTPGetAction) (string, error) {
	port := get.Port.IntValue()
	for _, named := range spec.Ports {
		if named.Name == get.Port.StrVal {
			port = int(named.ContainerPort)
		}
	}
	if port == 0 {
		return "", fmt.Errorf("the container has no port %s", get.Port.String())
	}
	scheme := "http"
	if get.Scheme == corev1.URISchemeHTTPS {
		scheme = "https"
	}
	return scheme + "://" + net.JoinHostPort(p.address, strconv.Itoa(port)) + get.Path, nil
}

func answers(ctx context.Context, client *http.Client, url string, timeout time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	resp, err := client.Do(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode >= 200 && resp.StatusCode < 400
}
