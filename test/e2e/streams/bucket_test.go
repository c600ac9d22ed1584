package streams_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/clusterpass/clusterpass/infra/local/server"
	"github.com/clusterpass/clusterpass/shared/awsclient/mototest"
	"github.com/clusterpass/clusterpass/shared/recording/location"
	"github.com/clusterpass/clusterpass/shared/waittest"
	"github.com/clusterpass/clusterpass/test/e2e"
)

// newBucket returns the location of recordings in a new bucket, with a new key of KMS.
func newBucket(t *testing.T) location.Location {
	t.Helper()
	moto, _, _ := e2e.StartAWS(t)
	t.Setenv("AWS_ENDPOINT_URL", moto.URL)
	cfg, bucket := mototest.Config(moto.URL), "recordings"
	_, err := s3.NewFromConfig(cfg, func(o *s3.Options) { o.UsePathStyle = true }).CreateBucket(t.Context(),
		&s3.CreateBucketInput{Bucket: &bucket, CreateBucketConfiguration: &types.CreateBucketConfiguration{
			LocationConstraint: types.BucketLocationConstraint(cfg.Region),
		}})
	if err != nil {
		t.Fatal(err)
	}
	key, err := kms.NewFromConfig(cfg).CreateKey(t.Context(), &kms.CreateKeyInput{})
	if err != nil {
		t.Fatal(err)
	}
	return location.Location{Kind: location.S3, Where: bucket + "/e2e", Key: aws.ToString(key.KeyMetadata.Arn)}
}

// TestRecordingsInABucket fails if an auditor cannot list, verify and play what a gateway recorded in S3.
func TestRecordingsInABucket(t *testing.T) {
	place, dir := newBucket(t), t.TempDir()
	h := e2e.StartGateway(t, dir, server.Inline, func(cfg *server.Config) { cfg.Location = place })
	t.Cleanup(func() {
		h.Stop()
		if err := <-h.Stopped; err != nil {
			t.Error(err)
		}
	})
	ns := e2e.StreamPods(t, []string{"member1"}, "shell")
	e2e.Kubectl{Kubeconfig: h.Kubeconfig, Context: "clusterpass"}.Apply(t, fmt.Sprintf("{apiVersion: "+
		"clusterpass.io/v1alpha1, kind: RecordingPolicy, metadata: {name: all}, "+
		"spec: {namespaces: [%s], level: required}}", ns))
	g := e2e.Kubectl{Kubeconfig: h.Kubeconfig, Context: "member1"}
	recordings := func(args ...string) (string, error) {
		return e2e.CLI(t, "", append([]string{"recording", "--store", "dir:" + filepath.Join(dir, "data"),
			"--recordings", place.String()}, args...)...)
	}
	var id, listed string
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("recordings:\n%s", listed)
		}
	})
	waittest.Until(t, "a session is recorded", func() bool {
		g.Must(t, "-n", ns, "exec", "shell", "--", "echo", "into the bucket")
		out, err := recordings("list", "--namespace", ns)
		if err != nil {
			t.Fatalf("list: %v\n%s", err, out)
		}
		listed = out
		for line := range strings.Lines(out) {
			if strings.HasSuffix(line, " complete\n") {
				id, _, _ = strings.Cut(line, " ")
			}
		}
		return id != ""
	})
	for command, want := range map[string]string{"verify": "complete and unchanged", "play": "into the bucket\n"} {
		if out, err := recordings(command, id); err != nil || !strings.Contains(out, want) {
			t.Errorf("%s: %s%v", command, out, err)
		}
	}
}
