package rotate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager/types"

	"github.com/clusterpass/clusterpass/shared/awsclient/mototest"
)

// fakeManager is one secret with the documented semantics of AWS.
type fakeManager struct {
	name string

	mu     sync.Mutex
	values map[string]*string // by version ID; nil before the first put
	stages map[string][]string
}

func newFakeManager(name, id, value string) *fakeManager {
	return &fakeManager{name: name, values: map[string]*string{id: &value}, stages: map[string][]string{id: {current}}}
}

// begin prepares a rotation, like RotateSecret.
func (f *fakeManager) begin(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.values[id], f.stages[id] = nil, []string{pending}
}

func (f *fakeManager) DescribeSecret(context.Context, *secretsmanager.DescribeSecretInput,
	...func(*secretsmanager.Options)) (*secretsmanager.DescribeSecretOutput, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	stages := map[string][]string{}
	for id, s := range f.stages {
		if len(s) > 0 {
			stages[id] = slices.Clone(s)
		}
	}
	return &secretsmanager.DescribeSecretOutput{Name: &f.name, VersionIdsToStages: stages}, nil
}

func (f *fakeManager) GetSecretValue(_ context.Context, in *secretsmanager.GetSecretValueInput,
	_ ...func(*secretsmanager.Options)) (*secretsmanager.GetSecretValueOutput, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, s := range f.stages {
		if (in.VersionId == nil || *in.VersionId == id) && slices.Contains(s, *in.VersionStage) && f.values[id] != nil {
			return &secretsmanager.GetSecretValueOutput{VersionId: aws.String(id), SecretString: aws.String(*f.values[id])}, nil
		}
	}
	return nil, &types.ResourceNotFoundException{Message: aws.String("can't find the specified secret value")}
}

func (f *fakeManager) PutSecretValue(_ context.Context, in *secretsmanager.PutSecretValueInput,
	_ ...func(*secretsmanager.Options)) (*secretsmanager.PutSecretValueOutput, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	id := *in.ClientRequestToken
	if old := f.values[id]; old != nil && *old != *in.SecretString {
		return nil, &types.ResourceExistsException{Message: aws.String("that value is already in use")}
	}
	f.values[id] = aws.String(*in.SecretString)
	for _, stage := range in.VersionStages {
		f.move(stage, id)
	}
	return &secretsmanager.PutSecretValueOutput{}, nil
}

func (f *fakeManager) UpdateSecretVersionStage(_ context.Context, in *secretsmanager.UpdateSecretVersionStageInput,
	_ ...func(*secretsmanager.Options)) (*secretsmanager.UpdateSecretVersionStageOutput, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	stage, from, to := *in.VersionStage, aws.ToString(in.RemoveFromVersionId), aws.ToString(in.MoveToVersionId)
	if holder := f.holder(stage); holder != from {
		return nil, &types.InvalidParameterException{Message: aws.String("the staging label is attached to another version")}
	}
	f.move(stage, to)
	if stage == current {
		f.move("AWSPREVIOUS", from)
	}
	return &secretsmanager.UpdateSecretVersionStageOutput{}, nil
}

func (f *fakeManager) holder(stage string) string {
	for id, s := range f.stages {
		if slices.Contains(s, stage) {
			return id
		}
	}
	return ""
}

func (f *fakeManager) move(stage, to string) {
	for id, s := range f.stages {
		f.stages[id] = slices.DeleteFunc(slices.Clone(s), func(x string) bool { return x == stage })
	}
	if to != "" {
		f.stages[to] = append(f.stages[to], stage)
	}
}

// replace writes a new current version, like a new registration of a cluster.
func (f *fakeManager) replace(id, value string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	old := f.holder(current)
	f.values[id] = &value
	f.move(current, id)
	f.move("AWSPREVIOUS", old)
}

// errDied is the result of calls in a dead process.
var errDied = errors.New("the process died")

// mortal is a Manager whose process dies before or after one call. It stays dead.
type mortal struct {
	Manager
	left  int // calls before the death
	after bool
}

func mayDie[In, Opt, Out any](ctx context.Context, m *mortal, in *In,
	call func(context.Context, *In, ...Opt) (*Out, error)) (*Out, error) {
	m.left--
	if m.left < 0 || m.left == 0 && !m.after {
		return nil, errDied
	}
	out, err := call(ctx, in)
	if m.left == 0 {
		return nil, errDied
	}
	return out, err
}

func (m *mortal) DescribeSecret(ctx context.Context, in *secretsmanager.DescribeSecretInput,
	_ ...func(*secretsmanager.Options)) (*secretsmanager.DescribeSecretOutput, error) {
	return mayDie(ctx, m, in, m.Manager.DescribeSecret)
}

func (m *mortal) GetSecretValue(ctx context.Context, in *secretsmanager.GetSecretValueInput,
	_ ...func(*secretsmanager.Options)) (*secretsmanager.GetSecretValueOutput, error) {
	return mayDie(ctx, m, in, m.Manager.GetSecretValue)
}

func (m *mortal) PutSecretValue(ctx context.Context, in *secretsmanager.PutSecretValueInput,
	_ ...func(*secretsmanager.Options)) (*secretsmanager.PutSecretValueOutput, error) {
	return mayDie(ctx, m, in, m.Manager.PutSecretValue)
}

func (m *mortal) UpdateSecretVersionStage(ctx context.Context, in *secretsmanager.UpdateSecretVersionStageInput,
	_ ...func(*secretsmanager.Options)) (*secretsmanager.UpdateSecretVersionStageOutput, error) {
	return mayDie(ctx, m, in, m.Manager.UpdateSecretVersionStage)
}

// onMoto returns a stand with moto, a fake of Secrets Manager, and the proxy before it. The current version is id(0).
func onMoto(t *testing.T) (*stand, *mototest.Front) {
	t.Helper()
	moto, err := mototest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(moto.Close)
	front := mototest.NewFront(t, moto.URL)
	cfg := mototest.Config(front.URL)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	cfg.HTTPClient = &http.Client{Transport: transport}
	client := secretsmanager.NewFromConfig(cfg)
	member := newMember(t)
	b := newStand(t, member, secretName)
	if _, err := client.CreateSecret(t.Context(), &secretsmanager.CreateSecretInput{
		Name: aws.String(secretName), SecretString: aws.String(member.kubeconfig("token-0")),
		ClientRequestToken: aws.String(id(0)),
	}); err != nil {
		t.Fatal(err)
	}
	b.manager = client
	b.begin = func(version string) {
		// The function does not exist, but moto reports that only after it has created the pending version.
		_, err := client.RotateSecret(t.Context(), &secretsmanager.RotateSecretInput{
			SecretId: &b.secret, ClientRequestToken: &version,
			RotationLambdaARN: aws.String("arn:aws:lambda:eu-west-1:123456789012:function:none"),
		})
		if stages := stagesOf(t, client, b.secret); stages[pending] != version {
			t.Fatalf("no rotation begun: %v, %v", stages, err)
		}
	}
	return b, front
}

// stagesOf returns the version of each stage.
func stagesOf(t *testing.T, m Manager, secret string) map[string]string {
	t.Helper()
	out, err := m.DescribeSecret(t.Context(), &secretsmanager.DescribeSecretInput{SecretId: &secret})
	if err != nil {
		t.Fatal(err)
	}
	stages := map[string]string{}
	for id, s := range out.VersionIdsToStages {
		for _, stage := range s {
			stages[stage] = id
		}
	}
	return stages
}

// wantStages checks the result of stagesOf. pairs are stages and versions, e.g. "AWSCURRENT", "v1".
func wantStages(t *testing.T, m Manager, secret string, pairs ...string) {
	t.Helper()
	want := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		want[pairs[i]] = pairs[i+1]
	}
	if got := stagesOf(t, m, secret); !maps.Equal(got, want) {
		t.Errorf("stages %v, want %v", got, want)
	}
}

// id returns a version ID of valid length.
func id(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }
