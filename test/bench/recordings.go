package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/gorilla/websocket"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/clusterpass/clusterpass/shared/api/clusterpass/v1alpha1"
	"github.com/clusterpass/clusterpass/shared/stores"
	"github.com/clusterpass/clusterpass/test/cluster"
)

const (
	recordedNamespace = "recorded"
	outputSize        = 128 << 20
	outputRounds      = 7
	linkRate          = 25 << 20 // bytes a second, 200 Mbit/s

	// The recorder writes text as it is, and other bytes in base64, which needs a third more.
	printText  = "yes 'drwxr-xr-x  2 root root  4096 Nov 24 13:24 node_modules' | head -c %d"
	printBytes = "head -c %d /dev/urandom"
)

// Commands whose output is measured, with the greatest part of their throughput in percent that a recording may cost.
// Without a limit, the processors decide, which also run the client, the API server and the command.
var outputs = []struct {
	name, command string
	link          int // bytes that the client's connection transfers a second; 0 means no limit
	goal          float64
}{
	{"text", printText, 0, 5},
	{"random bytes", printBytes, 0, 10},
	{"text at 200 Mbit/s", printText, linkRate, 5},
	{"random bytes at 200 Mbit/s", printBytes, linkRate, 5},
}

// recordings measures sessions whose recording is required beside others, through one gateway.
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
	dir = filepath.Join(dir, "recordings")
	cfg, stop, err := gatewayConfig(ctx, dir, member.KubeconfigFile())
	if err != nil {
		return err
	}
	defer stop()
	endpoints := []*streamEndpoint{
		{name: "unrecorded", namespace: "bench", cfg: cfg}, {name: "recorded", namespace: recordedNamespace, cfg: cfg},
	}
	for _, e := range endpoints {
		if err := startPod(ctx, direct, e.namespace); err != nil {
			return err
		}
	}
	if err := requireRecordings(ctx, filepath.Join(dir, "data"), endpoints[1]); err != nil {
		return err
	}
	if err := execRoundTrips(ctx, endpoints); err != nil {
		return err
	}
	tw := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprint(tw, "\nsessions\texec round trip p50 ms\tp95 ms\t")
	for i, o := range outputs {
		_, _ = fmt.Fprintf(tw, "%s MB/s\t", o.name)
		if err := outputRates(ctx, endpoints, i); err != nil {
			return err
		}
	}
	rates := make([][]float64, len(endpoints)) // by endpoint, then by output
	for i, e := range endpoints {
		slices.Sort(e.rounds)
		_, _ = fmt.Fprintf(tw, "\n%s\t%.3f\t%.3f\t", e.name, ms(at(e.rounds, 0.5)), ms(at(e.rounds, 0.95)))
		for j := range outputs {
			of := e.rates[j*outputRounds : (j+1)*outputRounds]
			slices.Sort(of)
			rates[i] = append(rates[i], of[len(of)/2])
			_, _ = fmt.Fprintf(tw, "%.1f\t", rates[i][j])
		}
	}
	_, _ = fmt.Fprintln(tw)
	added := ms(at(endpoints[1].rounds, 0.5)) - ms(at(endpoints[0].rounds, 0.5))
	out.atMost("exec round trip that a recording adds, p50", added, 0.1, " ms")
	for j, o := range outputs {
		out.atMost("throughput of "+o.name+" that a recording costs", 100*(1-rates[1][j]/rates[0][j]), o.goal, " %")
	}
	return tw.Flush()
}

// requireRecordings stores a policy, and returns when sessions of the endpoint are recorded.
func requireRecordings(ctx context.Context, data string, recorded *streamEndpoint) error {
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
	for range 100 {
		if _, err := outputOnce(ctx, recorded, "echo", len("\n")); err != nil {
			return err
		}
		entries, err := os.ReadDir(filepath.Join(data, "recordings"))
		if err == nil && len(entries) > 0 {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return errors.New("no session is recorded")
}

func outputRates(ctx context.Context, endpoints []*streamEndpoint, output int) error {
	command := fmt.Sprintf(outputs[output].command, outputSize)
	for range outputRounds {
		for _, e := range endpoints {
			e.link = outputs[output].link
			start := time.Now()
			n, err := outputOnce(ctx, e, command, outputSize)
			if err != nil {
				return fmt.Errorf("%s of %s: %w", outputs[output].name, e.name, err)
			}
			e.rates = append(e.rates, float64(n)/1e6/time.Since(start).Seconds())
		}
	}
	return nil
}

// outputOnce runs a shell command and returns the number of bytes of its output, which must be want.
func outputOnce(ctx context.Context, e *streamEndpoint, command string, want int) (int, error) {
	conn, err := dialExec(ctx, e, url.Values{"command": {"sh", "-c", command}, "stdout": {"1"}})
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }()
	n := 0
	for {
		_, m, err := conn.ReadMessage()
		if websocket.IsCloseError(err, websocket.CloseNormalClosure) {
			break
		}
		if err != nil {
			return n, err
		}
		if len(m) > 0 && m[0] == 1 {
			n += len(m) - 1
		}
	}
	if n != want {
		return n, fmt.Errorf("%d of %d bytes came", n, want)
	}
	return n, nil
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
	}
	if e.link > 0 {
		d.NetDialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
			return &slowConn{conn, rate.NewLimiter(rate.Limit(e.link), receiveBuffer)}, err
		}
	}
	conn, resp, err := d.DialContext(ctx, strings.Replace(e.cfg.Host, "https://", "wss://", 1)+
		"/api/v1/namespaces/"+e.namespace+"/pods/"+podName+"/exec?"+query.Encode(), nil)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", e.name, err)
	}
	_ = resp.Body.Close()
	_ = conn.SetReadDeadline(time.Now().Add(2 * time.Minute))
	return conn, nil
}

// slowConn limits the rate of its reads.
type slowConn struct {
	net.Conn
	limiter *rate.Limiter
}

// receiveBuffer is how many bytes a link delivers in advance while the client does not read: the receive buffer of a
// socket. Without it, each delay of the scheduler would lower the rate of the link.
const receiveBuffer = 1 << 20

func (c *slowConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p[:min(len(p), receiveBuffer)])
	if waitErr := c.limiter.WaitN(context.Background(), n); err == nil {
		err = waitErr
	}
	return n, err
}
