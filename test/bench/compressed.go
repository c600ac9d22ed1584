package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/test/cluster"
)

// The list that compressed measures.
const (
	compressedNamespace = "compressed"
	compressedPods      = 1500
	compressedPath      = "/api/v1/namespaces/" + compressedNamespace + "/pods"
)

// network lies between the client and the servers.
type network struct {
	name   string
	mbits  int // bandwidth in Mbit/s; 0 means no limit
	rounds int
}

// compressed measures a list of a real cluster with and without gzip: directly, and through a gateway to this cluster.
// The gateway has a processor of its own, since it usually runs on another machine than its clients and clusters.
func compressed(ctx context.Context, out *report, set *cluster.Set, dir string) (err error) {
	member := set.Cluster("member1")
	client, err := kubernetes.NewForConfig(member.RESTConfig())
	if err != nil {
		return err
	}
	if err := createNamespace(ctx, client, compressedNamespace); err != nil {
		return err
	}
	defer func() {
		ctx := context.WithoutCancel(ctx)
		// Without its pods, the deletion of the namespace does not disturb the next part.
		err = errors.Join(err,
			client.CoreV1().Pods(compressedNamespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}),
			client.CoreV1().Namespaces().Delete(ctx, compressedNamespace, metav1.DeleteOptions{}))
	}()
	if err := createPods(ctx, client); err != nil {
		return err
	}
	var process *exec.Cmd
	var gateway *rest.Config
	restore, err := startOnOwnProcessor(func() (err error) {
		process, gateway, err = startProcess(ctx, filepath.Join(dir, "compressed"), "--register="+member.KubeconfigFile())
		return err
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, restore()) }()
	defer interrupt(process)
	root, _, _ := strings.Cut(gateway.Host, "/clusters/")
	fleet := rest.CopyConfig(gateway)
	fleet.Host = root + allClusters
	tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintf(tw, "\nLIST of %d pods\tencoding\tthrough\tMB sent\tp50 ms\tp50 / direct\t"+
		"CPU ms of the gateway\t\n", compressedPods)
	for _, n := range []network{
		{"10 Mbit/s", 10, 5}, {"100 Mbit/s", 100, 9}, {"1000 Mbit/s", 1000, 9}, {"loopback", 0, 9},
	} {
		var endpoints []*proxied
		for _, server := range []struct {
			name    string
			cfg     *rest.Config
			process *exec.Cmd
		}{{"direct", member.RESTConfig(), nil}, {ofGateway, gateway, process}, {"the fleet", fleet, process}} {
			e, err := n.endpoint(server.name, server.cfg)
			if err != nil {
				return err
			}
			endpoints = append(endpoints, &proxied{e, server.process})
		}
		for _, encoding := range []string{"gzip", "identity"} {
			if err := n.compareLists(ctx, out, tw, endpoints, encoding); err != nil {
				return fmt.Errorf("%s, %s: %w", n.name, encoding, err)
			}
		}
	}
	return tw.Flush()
}

// createPods creates pods that no scheduler assigns. A new namespace refuses pods until it has its service account.
func createPods(ctx context.Context, client kubernetes.Interface) error {
	soon, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if err := waittest.Poll(soon, func(ctx context.Context) error {
		_, err := client.CoreV1().ServiceAccounts(compressedNamespace).Get(ctx, "default", metav1.GetOptions{})
		return err
	}); err != nil {
		return err
	}
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(16)
	for i := range compressedPods {
		all.Go(func() error {
			p := typicalPod()
			p.Name, p.Namespace, p.UID = fmt.Sprintf("pod-%04d", i), compressedNamespace, ""
			p.Spec.NodeName, p.Spec.SchedulerName = "", "none"
			for _, c := range p.Spec.Containers {
				for j := range c.VolumeMounts {
					c.VolumeMounts[j].Name = "data"
				}
			}
			p.Spec.Volumes = []corev1.Volume{{Name: "data"}}
			_, err := client.CoreV1().Pods(compressedNamespace).Create(ctx, p, metav1.CreateOptions{})
			return err
		})
	}
	return all.Wait()
}

// endpoint returns an endpoint beyond the network.
func (n network) endpoint(name string, cfg *rest.Config) (endpoint, error) {
	if n.mbits == 0 {
		return newEndpoint(name, cfg)
	}
	cfg = rest.CopyConfig(cfg)
	cfg.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		perSecond := n.mbits * 1_000_000 / 8
		return newSlowConn(conn, perSecond, max(perSecond/200, 16<<10)), nil // for delays of 5 ms
	}
	return newEndpoint(name, cfg)
}

// compareLists prints a row for each endpoint, of interleaved lists.
func (n network) compareLists(ctx context.Context, out *report, tw io.Writer, all []*proxied, encoding string) error {
	elapsed, used := make([][]time.Duration, len(all)), make([]time.Duration, len(all))
	sizes := make([]int64, len(all))
	for round := range n.rounds + 1 {
		for i, p := range all {
			before, err := p.cpuTime()
			if err != nil {
				return err
			}
			start := time.Now()
			if sizes[i], err = readEncoded(ctx, p.endpoint, compressedPath, encoding); err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			if round == 0 { // opens connections
				continue
			}
			elapsed[i] = append(elapsed[i], time.Since(start))
			after, err := p.cpuTime()
			if err != nil {
				return err
			}
			used[i] += (after - before) / time.Duration(n.rounds)
		}
	}
	direct := 0.0
	for i, p := range all {
		slices.Sort(elapsed[i])
		p50 := ms(at(elapsed[i], 0.5))
		if i == 0 {
			direct = p50
		} else {
			out.atMost(fmt.Sprintf("list at %s, %s, %s: / direct", n.name, encoding, p.name), p50/direct, 1.05, "")
		}
		_, err := fmt.Fprintf(tw, "%s\t%s\t%s\t%.2f\t%.1f\t%.2f\t%.0f\t\n", n.name, encoding, p.name,
			float64(sizes[i])/1e6, p50, p50/direct, ms(used[i]))
		if err != nil {
			return err
		}
	}
	return nil
}
