/*
 * A synchronous training job in small: every rank computes, then all reduce a buffer, for ever.
 *
 *     mpi_job COMPUTE_MS MEGABYTES LATE_MS
 *
 * Computing is waiting. SIGUSR1 has a rank compute LATE_MS longer from its next step on, SIGUSR2
 * ends that. A rank prints a JSON line when it starts, and one after each step: when it began to
 * compute, when it was ready to reduce, and when all was reduced, on the machine's monotonic clock.
 */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t late;

static void heed(int number) { late = number == SIGUSR1; }

static double now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

static void wait_until(double end_s)
{
	double left_s;

	while ((left_s = end_s - now_s()) > 0)
		usleep(left_s * 1e6 + 1);
}

int main(int argc, char **argv)
{
	double begin_s, ready_s, compute_s, late_s;
	int rank, count, done;
	float *own, *sum;
	MPI_Request request;
	char host[64] = "";

	if (argc != 4)
		return 2;
	compute_s = atof(argv[1]) / 1e3;
	count = atof(argv[2]) * 1e6 / sizeof(float);
	late_s = atof(argv[3]) / 1e3;
	own = calloc(count, sizeof(float));
	sum = calloc(count, sizeof(float));
	MPI_Init(&argc, &argv);
	signal(SIGUSR1, heed);
	signal(SIGUSR2, heed);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	gethostname(host, sizeof(host) - 1);
	printf("{\"rank\": %d, \"pid\": %d, \"host\": \"%s\"}\n", rank, getpid(), host);
	fflush(stdout);
	for (int step = 0;; step++) {
		begin_s = now_s();
		wait_until(begin_s + compute_s + (late ? late_s : 0));
		ready_s = now_s();
		MPI_Iallreduce(own, sum, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &request);
		/* Polled, not waited for: Open MPI waits on a busy CPU, and all ranks share two. What a
		 * socket holds is sent meanwhile. */
		for (done = 0; !done; MPI_Test(&request, &done, MPI_STATUS_IGNORE))
			usleep(4000);
		printf("{\"rank\": %d, \"step\": %d, \"begin_s\": %.4f, \"ready_s\": %.4f, "
		       "\"done_s\": %.4f}\n", rank, step, begin_s, ready_s, now_s());
		fflush(stdout);
	}
}
