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

// fakeManager is one secret with the semantics that AWS documents.
type fakeManager struct {
	name string

	mu     sync.Mutex
	values map[string]*string // by version id; nil before the first put
	stages map[string][]string
}

func newFakeManager(name, id, value string) *fakeManager {
	return &fakeManager{name: name, values: map[string]*string{id: &value}, stages: map[string][]string{id: {current}}}
}

// begin is what RotateSecret does before it calls the function.
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

// replace is what registering a cluster anew does.
func (f *fakeManager) replace(id, value string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	old := f.holder(current)
	f.values[id] = &value
	f.move(current, id)
	f.move("AWSPREVIOUS", old)
}

// errDied is what a call of a dead process returns.
var errDied = errors.New("the process died")

// mortal is a Manager whose process dies at one call: before it or after it. It stays dead.
type mortal struct {
	Manager
	left  int // calls until then
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

// startMoto starts an imitation of Secrets Manager and returns a client.
func startMoto(t *testing.T) *secretsmanager.Client {
	t.Helper()
	moto, err := mototest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(moto.Close)
	cfg := mototest.Config(moto.URL)
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	cfg.HTTPClient = &http.Client{Transport: transport}
	return secretsmanager.NewFromConfig(cfg)
}

// stagesOf says which version has which stage.
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

// wantStages checks that; stages are given as in "AWSCURRENT", "v1".
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

// id makes a version's id, of the length that AWS wants.
func id(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }
