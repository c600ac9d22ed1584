package clients

import (
	"context"
	"os/exec"
	"testing"

	"github.com/clusterpass/clusterpass/test/clients/programs"
	"github.com/clusterpass/clusterpass/test/e2e"
)

// TestStern: stern must follow the logs of pods that run, and of a pod that appears later.
func TestStern(t *testing.T) {
	coverEverything(t)
	for _, p := range places {
		t.Run(p.context, func(t *testing.T) {
			ns := e2e.StreamPods(t, e2e.Members, "talker-a", "finite-a")
			env := environment(t)
			args := []string{"--context", p.context, "--namespace", ns + p.namespace, "--color", "never"}
			e2e.WantText(t, must(t, env, built.Path(programs.Stern), append(args, "--no-follow", "finite")...),
				"finite-a"+p.name+" finite one", "finite-a"+p.name+" finite two", "finite-a"+p.name+" finite three")

			s := e2e.StartCommand(t, "stern", func(ctx context.Context) *exec.Cmd {
				cmd := exec.CommandContext(ctx, built.Path(programs.Stern), append(args, "talker")...)
				cmd.Env = env
				return cmd
			})
			s.Line("talker-a" + p.name + " talker a ")
			later := e2e.WriteFile(t, e2e.StreamPod("talker-b"))
			e2e.Direct("member1").Must(t, "apply", "-n", ns, "-f", later)
			s.Line("talker-b" + p.name + " talker b ")
			if p == names {
				s.Line("talker-a@member2 talker a ")
			}
		})
	}
}
