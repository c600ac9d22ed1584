package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/gorilla/websocket"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/httpstream/spdy" //nolint:staticcheck // the executor of client-go takes its type
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/clusterpass/clusterpass/shared/api/clusterpass/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/awsclient/mototest"
	"github.com/clusterpass/clusterpass/shared/recording/location"
	"github.com/clusterpass/clusterpass/shared/stores"
	"github.com/clusterpass/clusterpass/test/cluster"
)

const (
	recordedNamespace = "recorded"
	outputSize        = 128 << 20 // without a limit
	linkedSize        = 64 << 20  // with a limit, which determines the duration
	outputRounds      = 5
	linkRate          = 25_000_000 // bytes a second, 200 Mbit/s

	// The recorder writes text as it is, and other bytes in base64, which needs a third more.
	printText  = "yes 'drwxr-xr-x  2 root root  4096 Nov 24 13:24 node_modules' | head -c %d"
	printBytes = "head -c %d /dev/urandom"
)

// Sessions whose output is measured, with the greatest part of their throughput in percent that a recording may cost.
// Without a limit, the processor of the client, the API server and the command decides.
var outputs = []struct {
	name, command string
	place         place
	read          func(ctx context.Context, e *streamEndpoint, command string) (n int, err error)
	link          int // bytes that the client's connection transfers a second; 0 means no limit
	goal          float64
}{
	{"text", printText, directory, readByWebsocket, 0, 5},
	{"random bytes", printBytes, directory, readByWebsocket, 0, 5},
	{"text at 200 Mbit/s", printText, directory, readByWebsocket, linkRate, 5},
	{"random bytes at 200 Mbit/s", printBytes, directory, readByWebsocket, linkRate, 5},
	{"text by SPDY", printText, directory, readBySPDY, 0, 5},
	{"random bytes by SPDY", printBytes, directory, readBySPDY, 0, 5},
	{"text by SPDY at 200 Mbit/s", printText, directory, readBySPDY, linkRate, 5},
	{"random bytes by SPDY at 200 Mbit/s", printBytes, directory, readBySPDY, linkRate, 5},
	{"text at 200 Mbit/s, to a bucket", printText, bucket, readByWebsocket, linkRate, 5},
	{"random bytes at 200 Mbit/s, to a bucket", printBytes, bucket, readByWebsocket, linkRate, 5},
}

// place is where a gateway stores recordings.
type place string

const (
	directory place = "a directory"
	bucket    place = "a bucket" // on moto
)

// recordings measures sessions whose recording is required beside others, through one gateway for each place.
func recordings(ctx context.Context, out *report, set *cluster.Set, dir string) error {
	member := set.Cluster("member1")
	direct, err := kubernetes.NewForConfig(member.RESTConfig())
	if err != nil {
		return err
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: recordedNamespace}}
	if _, err := direct.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		return err
	}
	for _, namespace := range []string{"bench", recordedNamespace} {
		if err := startPod(ctx, direct, namespace); err != nil {
			return err
		}
	}
	dir = filepath.Join(dir, "recordings")
	if err := recordingsIn(ctx, out, directory, location.In(dir), member, dir, nil); err != nil {
		return err
	}
	moto, err := mototest.Start()
	if err != nil {
		return err
	}
	defer moto.Close()
	in := location.Location{Kind: location.S3, Where: "recordings"}
	if err := errors.Join(setEnvironment(moto.URL), createBucket(ctx, moto.URL, in.Where)); err != nil {
		return err
	}
	return recordingsIn(ctx, out, bucket, in, member, dir+"-in-s3", awsEnvironment(moto.URL))
}

func createBucket(ctx context.Context, moto, name string) error {
	cfg := mototest.Config(moto)
	_, err := s3.NewFromConfig(cfg, func(o *s3.Options) { o.UsePathStyle = true }).CreateBucket(ctx, &s3.CreateBucketInput{
		Bucket: &name, CreateBucketConfiguration: &types.CreateBucketConfiguration{
			LocationConstraint: types.BucketLocationConstraint(cfg.Region),
		},
	})
	return err
}

// recordingsIn measures the outputs of a place with a gateway that records to in. dir is for the gateway's data, and
// env is added to its environment. It has a processor of its own, since it usually runs on another machine than its
// clients and clusters. Its processor time is measured, too, because it may be idle while it waits for them.
func recordingsIn(
	ctx context.Context, out *report, p place, in location.Location, member *cluster.Cluster, dir string, env []string,
) (err error) {
	var process *exec.Cmd
	var cfg *rest.Config
	restore, err := startOnOwnProcessor(func() (err error) {
		process, cfg, err = startProcessIn(ctx, env, dir, "--register="+member.KubeconfigFile(),
			"--recordings="+in.String())
		return err
	})
	if err != nil {
		return err
	}
	defer func() {
		interrupt(process)
		err = errors.Join(err, restore())
	}()
	endpoints := []*streamEndpoint{
		{name: "unrecorded", namespace: "bench", cfg: cfg}, {name: "recorded", namespace: recordedNamespace, cfg: cfg},
	}
	if err := requireRecordings(ctx, dir, in, endpoints[1]); err != nil {
		return err
	}
	if err := execRoundTrips(ctx, endpoints); err != nil {
		return err
	}
	for _, e := range endpoints {
		slices.Sort(e.rounds)
	}
	tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintf(tw, "\nrecordings in %s\tunrecorded\trecorded\t\n", p)
	row := func(name string, q float64) {
		_, _ = fmt.Fprintf(tw, "%s\t%.3f\t%.3f\t\n", name, ms(at(endpoints[0].rounds, q)), ms(at(endpoints[1].rounds, q)))
	}
	row("exec round trip p50 ms", 0.5)
	row("p95 ms", 0.95)
	added := ms(at(endpoints[1].rounds, 0.5)) - ms(at(endpoints[0].rounds, 0.5))
	out.atMost(fmt.Sprintf("exec round trip that a recording in %s adds, p50", p), added, 0.1, " ms")
	for i, o := range outputs {
		if o.place != p {
			continue
		}
		rates, cpu, err := outputRates(ctx, endpoints, i, process.Process.Pid)
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintf(tw, "%s MB/s\t%.1f\t%.1f\t\n", o.name, rates[0], rates[1])
		_, _ = fmt.Fprintf(tw, "processor time of the gateway, ns a byte\t%.1f\t%.1f\t\n", cpu[0], cpu[1])
		out.atMost("throughput of "+o.name+" that a recording costs", 100*(1-rates[1]/rates[0]), o.goal, " %")
	}
	return tw.Flush()
}

// requireRecordings stores a policy, and returns when sessions of the endpoint are recorded.
func requireRecordings(ctx context.Context, data string, in location.Location, recorded *streamEndpoint) error {
	st, err := stores.Open(ctx, stores.Address{Kind: "dir", Where: data})
	if err != nil {
		return err
	}
	policy, err := json.Marshal(v1alpha1.RecordingPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "bench"},
		Spec:       v1alpha1.RecordingPolicySpec{Namespaces: []string{recorded.namespace}, Level: v1alpha1.Required},
	})
	if err != nil {
		return err
	}
	if _, err := st.Objects.Create(ctx, v1alpha1.RecordingPolicyPrefix+"bench", policy); err != nil {
		return err
	}
	store, err := location.OpenExisting(ctx, in)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	for range 100 {
		if _, err := readByWebsocket(ctx, recorded, "echo"); err != nil {
			return err
		}
		if ids, err := store.List(ctx, ""); err != nil || len(ids) > 0 {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
	return errors.New("no session is recorded")
}

// outputRates returns the median throughput of each endpoint in MB/s, interleaved. cpu is the median processor time of
// the gateway, a process, in ns a byte.
func outputRates(
	ctx context.Context, endpoints []*streamEndpoint, output, gateway int,
) (rates, cpu []float64, err error) {
	o := outputs[output]
	size := outputSize
	if o.link > 0 {
		size = linkedSize
	}
	command := fmt.Sprintf(o.command, size)
	allRates, allCPU := make([][]float64, len(endpoints)), make([][]float64, len(endpoints))
	for range outputRounds {
		for i, e := range endpoints {
			e.link = o.link
			before, err := cpuTime(gateway)
			if err != nil {
				return nil, nil, err
			}
			start := time.Now()
			n, err := o.read(ctx, e, command)
			elapsed := time.Since(start)
			if err == nil && n != size {
				err = fmt.Errorf("%d of %d bytes came", n, size)
			}
			if err != nil {
				return nil, nil, fmt.Errorf("%s of %s: %w", o.name, e.name, err)
			}
			after, err := cpuTime(gateway)
			if err != nil {
				return nil, nil, err
			}
			allRates[i] = append(allRates[i], float64(n)/1e6/elapsed.Seconds())
			allCPU[i] = append(allCPU[i], float64(after-before)/float64(n))
		}
	}
	return medians(allRates), medians(allCPU), nil
}

func medians(all [][]float64) []float64 {
	out := make([]float64, len(all))
	for i, of := range all {
		out[i] = median(of)
	}
	return out
}

// readByWebsocket runs a shell command and returns the number of bytes of its output.
func readByWebsocket(ctx context.Context, e *streamEndpoint, command string) (n int, err error) {
	conn, err := dialExec(ctx, e, url.Values{"command": {"sh", "-c", command}, "stdout": {"1"}})
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }()
	for {
		_, m, err := conn.ReadMessage()
		if websocket.IsCloseError(err, websocket.CloseNormalClosure) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		if len(m) > 0 && m[0] == 1 {
			n += len(m) - 1
		}
	}
}

// readBySPDY is like readByWebsocket, with the executor of client-go.
func readBySPDY(ctx context.Context, e *streamEndpoint, command string) (n int, err error) {
	tlsConfig, err := rest.TLSConfigFor(e.cfg)
	if err != nil {
		return 0, err
	}
	upgrade, err := spdy.NewRoundTripperWithConfig(spdy.RoundTripperConfig{
		UpgradeTransport: &http.Transport{TLSClientConfig: tlsConfig, DialContext: e.dial},
	})
	if err != nil {
		return 0, err
	}
	u, err := url.Parse(e.execURL(url.Values{"command": {"sh", "-c", command}, "stdout": {"1"}}))
	if err != nil {
		return 0, err
	}
	exec, err := remotecommand.NewSPDYExecutorForTransports(upgrade, upgrade, http.MethodPost, u)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	var count byteCount
	err = exec.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &count})
	return int(count), err
}

// receiveBuffer is the size of the receive buffer of a socket. Without it, each delay of the scheduler would lower the
// rate of the link.
const receiveBuffer = 1 << 20

// byteCount counts the bytes that are written to it.
type byteCount int

func (c *byteCount) Write(p []byte) (int, error) {
	*c += byteCount(len(p))
	return len(p), nil
}

// execURL returns the URL of an exec session in the pod of an endpoint.
func (e *streamEndpoint) execURL(query url.Values) string {
	return e.cfg.Host + "/api/v1/namespaces/" + e.namespace + "/pods/" + podName + "/exec?" + query.Encode()
}

// dial opens a connection with the rate of the endpoint.
func (e *streamEndpoint) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil || e.link == 0 {
		return conn, err
	}
	return newSlowConn(conn, e.link, receiveBuffer), nil
}

// dialExec opens an exec session in the pod of an endpoint.
func dialExec(ctx context.Context, e *streamEndpoint, query url.Values) (*websocket.Conn, error) {
	tlsConfig, err := rest.TLSConfigFor(e.cfg)
	if err != nil {
		return nil, err
	}
	tlsConfig.NextProtos = []string{"http/1.1"}
	d := websocket.Dialer{
		TLSClientConfig: tlsConfig, Subprotocols: []string{"v5.channel.k8s.io"}, HandshakeTimeout: 20 * time.Second,
		NetDialContext: e.dial,
	}
	conn, resp, err := d.DialContext(ctx, strings.Replace(e.execURL(query), "https://", "wss://", 1), nil)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", e.name, err)
	}
	_ = resp.Body.Close()
	_ = conn.SetReadDeadline(time.Now().Add(2 * time.Minute))
	return conn, nil
}
