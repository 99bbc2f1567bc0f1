/* Our declarations of PM sampling's parameters against the real ones; compiled where the toolkit
 * is, and that is the whole test. */
#include "recorder/pm/pm.h"

#include <cupti.h>
#if __has_include(<cupti_pmsampling.h>)
#include <cupti_pmsampling.h>
#include <cupti_profiler_host.h>
#include <cupti_profiler_target.h>
#include <cupti_target.h>

/* Of pointers, too, the size is meant. Newer versions may know more behind what we have. */
/* NOLINTBEGIN(bugprone-sizeof-expression) */
#define SAME(ours, ours_last, real, real_last)                                                     \
    _Static_assert(offsetof(struct ours, ours_last) == offsetof(real, real_last), #real);          \
    _Static_assert(sizeof(((struct ours *)0)->ours_last) == sizeof(((real *)0)->real_last),        \
                   #real);                                                                         \
    _Static_assert(PM_SIZE(ours, ours_last) <= real##_STRUCT_SIZE, #real)

SAME(cupti_pm_plain, reserved, CUpti_Profiler_Initialize_Params, pPriv);
SAME(cupti_pm_chip, name, CUpti_Device_GetChipName_Params, pChipName);
SAME(cupti_pm_available, image, CUpti_PmSampling_GetCounterAvailability_Params,
     pCounterAvailabilityImage);
SAME(cupti_pm_enable, sampling, CUpti_PmSampling_Enable_Params, pPmSamplingObject);
SAME(cupti_pm_sampling, sampling, CUpti_PmSampling_Disable_Params, pPmSamplingObject);
SAME(cupti_pm_sampling, sampling, CUpti_PmSampling_Start_Params, pPmSamplingObject);
SAME(cupti_pm_sampling, sampling, CUpti_PmSampling_Stop_Params, pPmSamplingObject);
SAME(cupti_pm_config, hardware_bytes, CUpti_PmSampling_SetConfig_Params, hardwareBufferSize);
SAME(cupti_pm_config, append, CUpti_PmSampling_SetConfig_Params, hwBufferAppendMode);
SAME(cupti_pm_data_size, max_samples, CUpti_PmSampling_GetCounterDataSize_Params, maxSamples);
SAME(cupti_pm_data_size, bytes, CUpti_PmSampling_GetCounterDataSize_Params, counterDataSize);
SAME(cupti_pm_data_init, data, CUpti_PmSampling_CounterDataImage_Initialize_Params, pCounterData);
SAME(cupti_pm_decode, stop_reason, CUpti_PmSampling_DecodeData_Params, decodeStopReason);
SAME(cupti_pm_decode, overflow, CUpti_PmSampling_DecodeData_Params, overflow);
SAME(cupti_pm_data_info, n_completed, CUpti_PmSampling_GetCounterDataInfo_Params,
     numCompletedSamples);
SAME(cupti_pm_sample_info, start, CUpti_PmSampling_CounterData_GetSampleInfo_Params,
     startTimestamp);
SAME(cupti_pm_sample_info, end, CUpti_PmSampling_CounterData_GetSampleInfo_Params, endTimestamp);
SAME(cupti_pm_host, available, CUpti_Profiler_Host_Initialize_Params, pCounterAvailabilityImage);
SAME(cupti_pm_host, host, CUpti_Profiler_Host_Initialize_Params, pHostObject);
SAME(cupti_pm_host_end, host, CUpti_Profiler_Host_Deinitialize_Params, pHostObject);
SAME(cupti_pm_add, n, CUpti_Profiler_Host_ConfigAddMetrics_Params, numMetrics);
SAME(cupti_pm_image_size, bytes, CUpti_Profiler_Host_GetConfigImageSize_Params, configImageSize);
SAME(cupti_pm_image, image, CUpti_Profiler_Host_GetConfigImage_Params, pConfigImage);
SAME(cupti_pm_passes, n, CUpti_Profiler_Host_GetNumOfPasses_Params, numOfPasses);
SAME(cupti_pm_values, i, CUpti_Profiler_Host_EvaluateToGpuValues_Params, rangeIndex);
SAME(cupti_pm_values, values, CUpti_Profiler_Host_EvaluateToGpuValues_Params, pMetricValues);

#define EQUAL(ours, theirs) _Static_assert((unsigned)(ours) == (unsigned)(theirs), #theirs)
EQUAL(CUPTI_OUT_OF_MEMORY, CUPTI_ERROR_OUT_OF_MEMORY);
EQUAL(CUPTI_NOT_IMPLEMENTED, CUPTI_ERROR_API_NOT_IMPLEMENTED);
EQUAL(CUPTI_HARDWARE_BUSY, CUPTI_ERROR_HARDWARE_BUSY);
EQUAL(CUPTI_NOT_SUPPORTED, CUPTI_ERROR_NOT_SUPPORTED);
EQUAL(CUPTI_VIRTUALIZED, CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED);
EQUAL(CUPTI_INSUFFICIENT_PRIVILEGES, CUPTI_ERROR_INSUFFICIENT_PRIVILEGES);
EQUAL(CUPTI_VIRTUALIZED_PRIVILEGES, CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES);
EQUAL(CUPTI_CONFIDENTIAL, CUPTI_ERROR_CONFIDENTIAL_COMPUTING_NOT_SUPPORTED);
EQUAL(CUPTI_UNKNOWN_CHIP, CUPTI_ERROR_INVALID_CHIP_NAME);
EQUAL(CUPTI_PROFILE_PM_SAMPLING, CUPTI_PROFILER_TYPE_PM_SAMPLING);
EQUAL(CUPTI_PM_BY_SYSCLK, CUPTI_PM_SAMPLING_TRIGGER_MODE_GPU_SYSCLK_INTERVAL);
EQUAL(CUPTI_PM_BY_TIME, CUPTI_PM_SAMPLING_TRIGGER_MODE_GPU_TIME_INTERVAL);
#endif
/* NOLINTEND(bugprone-sizeof-expression) */
