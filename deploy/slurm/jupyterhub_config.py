"""Students' servers as Slurm jobs. Included by a hub's own configuration, which then changes what it likes:

    load_subconfig("COURSE/deploy/slurm/jupyterhub_config.py")
    c.CourseSlurmSpawner.req_partition = "teaching"

`python -m autograder hub init` reads local_config.py of the class's folder last: these lines belong there.
Needs batchspawner in the hub's environment and in that of the servers, which are the same one here, on a file system
that the nodes see. Each student has an account on the cluster, under the name of the login.
"""

import sys
from pathlib import Path

import batchspawner  # also adds the address at which a job tells the hub its port

BIN = Path(sys.executable).parent


class CourseSlurmSpawner(batchspawner.SlurmSpawner):
    """A server in a job; what it may take is said here, not by whoever starts it."""

    async def submit_batch_script(self):
        """Submit, without the options of the request: batchspawner would put them in place of those below."""
        self.user_options = {}
        return await super().submit_batch_script()


c = get_config()  # noqa: F821 (traitlets gives a config file this name)
c.JupyterHub.spawner_class = CourseSlurmSpawner

# Jobs reach the hub by the name of this machine; let a firewall keep the port for the nodes.
c.JupyterHub.hub_bind_url = "http://0.0.0.0:8081"

# What a server gets. Slurm enforces it (with task/cgroup, memory and cores too) and writes it into its accounting.
c.CourseSlurmSpawner.req_nprocs = "2"
c.CourseSlurmSpawner.req_memory = "4G"
c.CourseSlurmSpawner.req_runtime = "8:00:00"
c.CourseSlurmSpawner.start_timeout = 300  # a queue may be long
c.CourseSlurmSpawner.http_timeout = 120

# Who submits. A hub of user `hub` needs in sudoers, in one line:
# hub ALL=(%students) NOPASSWD:SETENV: /usr/bin/sbatch, /usr/bin/squeue, /usr/bin/scancel
# For a hub of root, without sudo: "runuser -u {username} --".
c.CourseSlurmSpawner.exec_prefix = "sudo -E -u {username}"

c.CourseSlurmSpawner.env_keep.append("SLURM_CONF")  # where it is not /etc/slurm/slurm.conf
c.CourseSlurmSpawner.cmd = [str(BIN / "jupyterhub-singleuser")]
c.CourseSlurmSpawner.batchspawner_singleuser_cmd = f"{BIN / 'python'} -m batchspawner.singleuser"
# Names in --export, never values: a command line can be read by everybody, the environment of a job by its owner.
c.CourseSlurmSpawner.batch_script = """#!/bin/bash
#SBATCH --job-name=course-{{username}}
#SBATCH --output={{homedir}}/.course-server.log
#SBATCH --chdir={{homedir}}
#SBATCH --export={{keepvars}}
#SBATCH --ntasks=1
#SBATCH --cpus-per-task={{nprocs}}
#SBATCH --mem={{memory}}
#SBATCH --time={{runtime}}
{% if partition %}#SBATCH --partition={{partition}}
{% endif %}{% if account %}#SBATCH --account={{account}}
{% endif %}{% if ngpus %}#SBATCH --gres=gpu:{{ngpus}}
{% endif %}{% if options %}#SBATCH {{options}}
{% endif %}set -eu
export HOME={{homedir}} USER={{username}} PATH=""" + str(BIN) + """:$PATH OMP_NUM_THREADS=1
{{prologue}}
exec {{cmd}}
"""
